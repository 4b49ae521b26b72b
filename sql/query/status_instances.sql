select i.id::bigint, i.name, i.started_at, i.heartbeat_at,
       postdate.instance_lives(i, $1::bigint),
       coalesce(i.transport, '')
  from postdate.instance i order by i.id limit 16
