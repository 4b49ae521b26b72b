-- $1 id, $2 scope: null for any.
select due, id, next_at, created_at, settled_at, state::text, attempts, hold, exchange, routing_key, key, error, properties, body, properties_json::text, deadline
  from postdate.message_now where id = $1::uuid and ($2::text[] is null or exchange = any ($2::text[]))
