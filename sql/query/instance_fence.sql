-- Ends the sessions of instances whose lease ($2 ms) ran out, though their connection still stands: a stopped process.
select pg_terminate_backend(l.pid)
  from postdate.instance i
  join pg_locks l on l.locktype = 'advisory' and l.classid = 1886352244 and l.objid = i.id::oid and l.granted
       and l.database = (select oid from pg_database where datname = current_database())
 where i.id <> $1::int and i.heartbeat_at < clock_timestamp() - $2::bigint * interval '1 ms'
