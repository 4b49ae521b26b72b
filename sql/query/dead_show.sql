-- $1 id, $2 queue: the lineage and, unless it is dead, the row of the next or last delivery.
select l.id, l.queue, l.exchange, l.routing_key, l.reason, l.failed, coalesce((extract(epoch from l.died_at) * 1000000)::int8, -1), l.expires_at, coalesce(octet_length(l.body), 0)::int8, l.properties, l.body,
       l.error, l.message, l.message is not null, coalesce(w.waits, false), w.next_at
  from postdate.lineage l
  left join lateral postdate.message_waits(l.message) w on l.message is not null
 where l.id = $1::uuid and l.queue = $2::text
