-- 1886352244: 'post'; instances have the numbers from 1 on.
select pg_advisory_xact_lock(1886352244, 0)
