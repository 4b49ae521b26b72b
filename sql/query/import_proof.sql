select i.id, i.due, i.source, i.exchange, i.routing_key, i.properties, i.body, i.message, i.hash
  from postdate.import i where i.node = $1::text and i.message is not null and i.id > $2::uuid order by i.id limit $3::int
