-- 1886352244: 'post'; instances have the numbers from 1 on. Whoever is first is waited for, however long its commit takes; redelivery_count
-- and redelivery_seen end that patience.
select set_config('lock_timeout', '0', true), pg_advisory_xact_lock(1886352244, 0)
