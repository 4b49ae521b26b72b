-- A session lock: it goes with its holder, so a key that nobody holds and that has no answer was left by somebody who died.
select pg_try_advisory_lock(hashtextextended($2::text, hashtextextended($1::text, 1886352244)))
