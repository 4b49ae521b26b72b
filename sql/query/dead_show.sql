-- $1 id, $2 queue: what is known, and of one that is not dead the row that waits for the next delivery, or waited last.
select l.id, l.queue, l.exchange, l.routing_key, l.reason, l.failed, l.died_at, l.expires_at, coalesce(octet_length(l.body), 0)::int8, l.properties, l.body,
       l.message, w.next_at, coalesce(w.waits, false), l.error
  from postdate.lineage l
  left join lateral postdate.message_waits(l.message) w on l.message is not null
 where l.id = $1::uuid and l.queue = $2::text
