-- Ids stored lately under these message-ids, by any consumer. ord counts from 1. $2, not null: only of those that were redeliveries themselves, and stored after the
-- redelivery of this number. No others then: a message that is not flagged and equals a stored one is a different message, of a consumer that republishes messages.
-- There may be tens of thousands of batches with one message each, and all other intakes wait meanwhile: all of them are read once, and hashed
-- (store_redelivery_count).
with noted as materialized (
    select unnest(message_ids) as message_id, unnest(ids) as id from postdate.intake_batch where $2::bigint is null or redelivery > $2::bigint)
select t.ord::int, noted.id
  from unnest($1::text[]) with ordinality as t (message_id, ord)
  join noted on noted.message_id = t.message_id
