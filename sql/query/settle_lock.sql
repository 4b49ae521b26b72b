-- Locks those of $1 that nobody else holds. Parameters as settle_delivered, and $6: also what another gateway has claimed; what has lost its owner may be settled, if it was delivered.
select id from postdate.message
 where id = any ($1::uuid[]) and id >= $2::uuid and id < $3::uuid and (owner is not distinct from $4::int and owner is not null
        or settled_at is null and (owner is null or $6::bool) and state = 'claimed'
        or next_at is null and ($5::bool and hold = 'b'
                                or exists (select from postdate.batch b where (b.owner = $4::int or $6::bool) and not b.done and b.from_id < message.id and b.to_id >= message.id)))
   for update skip locked
