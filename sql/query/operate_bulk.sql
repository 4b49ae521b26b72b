-- One chunk of one partition: [$1, $2), after id $3. $4 states that the operation applies to; $5 exchange, $6 a pattern of routing keys, $8 ids, $9 scope: null for
-- any. $10: messages stored since then are left out, so that none is rescheduled twice. $11 the operation (null: they are only counted), $12 ms to shift by, $13 who
-- asks (null: the database's user). $14: only what had an attempt that failed. How many, how many were changed, the first, the last.
with page as materialized (
    -- The conditions on a row are outside, and the limit inside is not known before it runs: else, with few matches, the planner would prefer to read and sort the
    -- whole day.
    select id from (select * from postdate.message_now where id >= $1::uuid and id < $2::uuid and id > $3::uuid order by id limit (select 1000000000)) m
     where state::text = any ($4::text[]) and owner is null
       and (not $14::boolean or error is not null)
       and ($5::text is null or exchange = $5::text)
       and ($6::text is null or routing_key like $6::text)
       and ($8::uuid[] is null or id = any ($8::uuid[]))
       and ($9::text[] is null or exchange = any ($9::text[]))
       and created_at < timestamptz '1970-01-01 00:00:00+00' + $10::bigint * interval '1 us'
     limit $7::int),
pages as materialized (select array_agg(id order by id) as ids, count(*) as n from page)
select n, case when $11::text is null then 0
               else postdate.do_bulk($11::text, ids, $12::bigint * interval '1 ms', $9::text[], coalesce($13::text, session_user::text)) end::bigint, ids[1], ids[n]
  from pages where n > 0
