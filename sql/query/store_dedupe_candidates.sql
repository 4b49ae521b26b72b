-- Ids stored lately under these message-ids, by any consumer. ord counts from 1.
select t.ord::int, i.id
  from unnest($1::text[]) with ordinality as t (message_id, ord)
  join (postdate.intake_batch b cross join lateral unnest(b.message_ids, b.ids) as i (message_id, id))
    on i.message_id = t.message_id
