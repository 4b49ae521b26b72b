-- Ends the sessions of those of the instances $2 whose lease ($3 ms) has run out still, though their connection stands: a stopped process. Only those that this login
-- may end, and see: that began after the instance was registered is another one.
select pg_terminate_backend(a.pid)
  from postdate.instance i, lateral pg_stat_get_activity(i.backend_pid) a
 where i.id = any ($2::int[]) and i.id <> $1::int and i.heartbeat_at < clock_timestamp() - $3::bigint * interval '1 ms'
   and pg_has_role(a.usesysid, 'usage') and a.backend_start <= i.started_at
