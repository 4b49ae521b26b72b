-- Locks those of $1 that are not locked. Parameters as settle_delivered, and $6: also rows that another gateway has claimed; rows that have lost their owner may be
-- settled if they were delivered or handed over. $7: only what was to be handed over.
select id from postdate.message
 where id = any ($1::uuid[]) and id >= $2::uuid and id < $3::uuid and ($7::bool and state = 'handed' and settled_at is null or not $7::bool and (owner is not distinct from $4::int and owner is not null
        or settled_at is null and ((owner is null or $6::bool) and state = 'claimed' or $5::bool and state = 'handed')
        or next_at is null and exists (select from (select x.owner, x.from_id from (select b.owner, b.from_id, b.done from postdate.batch b where b.to_id >= message.id order by b.to_id limit 1) x where not x.done) b where (b.owner = $4::int or $6::bool) and b.from_id < message.id)))
   for update skip locked
