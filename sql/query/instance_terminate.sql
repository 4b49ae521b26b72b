-- Ends the sessions of instances whose lease ($2 ms) ran out, though their connection still stands: a stopped process. Only those that this login may end, and see:
-- that began after the instance was registered is another one.
select pg_terminate_backend(a.pid)
  from postdate.instance i, lateral pg_stat_get_activity(i.backend_pid) a
 where i.id <> $1::int and i.heartbeat_at < clock_timestamp() - $2::bigint * interval '1 ms'
   and pg_has_role(a.usesysid, 'usage') and a.backend_start <= i.started_at
