-- One page of one partition: [$1, $2) by due, after ($3, $4); filters are null for any. Without bodies.
select due, id, next_at, created_at, settled_at, state::text, attempts, hold, exchange, routing_key, key, error, properties, null::bytea
  from postdate.message
 where due >= $1::timestamptz and due < $2::timestamptz and (due, id) > ($3::timestamptz, $4::uuid)
   and ($5::text is null or state = $5::text::postdate.message_state)
   and ($6::text is null or exchange = $6::text)
   and ($7::text is null or routing_key = $7::text)
 order by due, id
 limit $8::int
