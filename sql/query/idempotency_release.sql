select pg_advisory_unlock(hashtextextended($2::text, hashtextextended($1::text, 1886352244)))
