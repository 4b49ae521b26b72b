select i.id::bigint, i.name, i.started_at, i.heartbeat_at,
       i.heartbeat_at > clock_timestamp() - $1::bigint * interval '1 ms'
       and exists (select from pg_locks l where l.locktype = 'advisory' and l.classid = 1886352244
                      and l.objid = i.id::oid and l.granted
                      and l.database = (select oid from pg_database where datname = current_database())),
       coalesce(i.transport, '')
  from postdate.instance i order by i.id limit 16
