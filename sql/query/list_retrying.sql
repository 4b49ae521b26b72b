-- In a transaction of pg_begin_by_index. As list_records.sql, with its parameters, for live messages with a failed attempt. Their rows have a next_at, so the state
-- is in the row; an index has them.
select due, id, case when rate is not null then due else next_at end, created_at, settled_at, state::text, attempts, hold, exchange, routing_key, key, error, properties, null::bytea, properties_json::text, deadline
  from postdate.message
 where id >= $1::uuid and id < $2::uuid and id > $3::uuid
   and id <= $10::uuid
   and ($8::uuid[] is null or id = any ($8::uuid[]))
   and ($9::text[] is null or exchange = any ($9::text[]))
   and ($4::text is null or state = $4::text::postdate.message_state)
   and ($5::text is null or exchange = $5::text)
   and ($6::text is null or routing_key like $6::text)
   and error is not null and settled_at is null and state <> 'handed'
   and $11::boolean is not null
 order by id
 limit $7::int
