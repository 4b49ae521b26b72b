select pg_try_advisory_lock(1886352244, $1::int)
