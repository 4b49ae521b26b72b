-- On the host $2, or all. Of more than there is room for, those that live, and the newest. `living` counts all.
select x.id, x.name, x.running_since, x.heartbeat_at, x.alive, x.transport, x.broker_away, x.program, x.living
  from (select i.*, count(*) filter (where i.alive) over () as living
          from (select i.id::bigint, i.name, i.running_since, i.heartbeat_at, postdate.instance_lives(i, $1::bigint) as alive,
                       coalesce(i.transport, '') as transport, i.broker_away, coalesce(i.program, '') as program
                  from postdate.instance i where $2::text is null or starts_with(i.name, $2 || ':')) i
         order by 5 desc, 1 desc limit 16) x
 order by x.id
