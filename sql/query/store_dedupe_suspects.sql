-- As dedupe_candidates, of those that were redeliveries themselves, and stored after the redelivery number $2. No others: a message that is not
-- flagged and looks like one that was stored as it came is another message, of a consumer that publishes again what it gets.
select t.ord::int, i.id
  from unnest($1::text[]) with ordinality as t (message_id, ord)
  join (postdate.intake_batch b cross join lateral unnest(b.message_ids, b.ids) as i (message_id, id))
    on i.message_id = t.message_id
 where b.redelivery > $2::bigint
