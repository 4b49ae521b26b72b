select i.id::bigint, i.name, i.running_since, i.heartbeat_at,
       postdate.instance_lives(i, $1::bigint),
       coalesce(i.transport, ''), i.broker_away, coalesce(i.program, '')
  from postdate.instance i order by i.id limit 16
