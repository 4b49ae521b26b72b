-- Dead letters in the order in which they died, after ($1 µs since 1970, $2 id, $3 queue; null: from the first). $4 pattern of LIKE for queues, $5 reason,
-- $6 exchange, $7 routing key, $8 scope, $9 ids: null for any. $10 µs: those that died before then. $11 how many.
select id, queue, exchange, routing_key, reason, failed, died_at, expires_at, coalesce(octet_length(body), 0)::int8
  from postdate.lineage
 where died_at is not null
   and ($1::int8 is null or (died_at, id, queue) > (timestamptz '1970-01-01 00:00:00+00' + $1::int8 * interval '1 us', $2::uuid, $3::text))
   and ($4::text is null or queue like $4::text)
   and ($5::text is null or reason = $5::text)
   and ($6::text is null or exchange = $6::text)
   and ($7::text is null or routing_key = $7::text)
   and ($8::text[] is null or exchange = any ($8::text[]))
   and ($9::uuid[] is null or id = any ($9::uuid[]))
   and ($10::int8 is null or died_at < timestamptz '1970-01-01 00:00:00+00' + $10::int8 * interval '1 us')
 order by died_at, id, queue
 limit $11::int
