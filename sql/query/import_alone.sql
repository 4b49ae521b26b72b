select pg_try_advisory_lock(hashtextextended('postdate.import ' || $1::text, 0))
