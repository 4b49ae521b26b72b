-- As store_dedupe_candidates, of those that were redeliveries themselves, and stored after the redelivery number $2. No others: a message that is not
-- flagged and looks like one that was stored as it came is another message, of a consumer that publishes again what it gets.
with noted as materialized (select unnest(message_ids) as message_id, unnest(ids) as id from postdate.intake_batch where redelivery > $2::bigint)
select t.ord::int, noted.id
  from unnest($1::text[]) with ordinality as t (message_id, ord)
  join noted on noted.message_id = t.message_id
