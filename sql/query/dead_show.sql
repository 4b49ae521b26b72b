-- $1 id, $2 queue: what is known, and of one that is not dead the row that waits for the next delivery, or waited last.
select l.id, l.queue, l.exchange, l.routing_key, l.reason, l.failed, l.died_at, l.expires_at, coalesce(octet_length(l.body), 0)::int8, l.properties, l.body,
       l.message, m.next_at, coalesce(m.state in ('scheduled', 'claimed', 'handed'), false), l.error
  from postdate.lineage l
  left join postdate.message m on m.id = l.message and m.due = (select postdate.id_due(x.message) from postdate.lineage x where x.id = $1::uuid and x.queue = $2::text)
 where l.id = $1::uuid and l.queue = $2::text
