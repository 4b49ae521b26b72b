-- Instances whose session lock is free: their connection is gone.
select id from postdate.instance where id <> $1::int and pg_try_advisory_xact_lock(1886352244, id)
