-- Ids stored lately under these message-ids, by any consumer. ord counts from 1. There may be tens of thousands of batches with one message each,
-- and all other intakes wait meanwhile: all of them are read once, and hashed (store_redelivery_count).
with noted as materialized (select unnest(message_ids) as message_id, unnest(ids) as id from postdate.intake_batch)
select t.ord::int, noted.id
  from unnest($1::text[]) with ordinality as t (message_id, ord)
  join noted on noted.message_id = t.message_id
