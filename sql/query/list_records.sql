-- In a transaction of pg_begin_by_index. One page of one partition: [$1, $2), after id $3 and up to $10 (ids sort like due times); filters are null for any. $11:
-- only unsettled messages. Without bodies.
select due, id, next_at, created_at, settled_at, state::text, attempts, hold, exchange, routing_key, key, error, properties, null::bytea, properties_json::text, deadline
  from postdate.message_now
 where id >= $1::uuid and id < $2::uuid and id > $3::uuid
   and id <= $10::uuid
   and ($8::uuid[] is null or id = any ($8::uuid[]))
   and ($9::text[] is null or exchange = any ($9::text[]))
   and ($4::text is null or state = $4::text::postdate.message_state)
   and ($5::text is null or exchange = $5::text)
   and ($6::text is null or routing_key like $6::text)
   and (not $11::boolean or settled_at is null)
 order by id
 limit $7::int
