select i.id, i.due, i.source, i.exchange, i.routing_key, i.properties, i.body
  from postdate.import i where i.id = any ($1::uuid[]) and i.message is null
