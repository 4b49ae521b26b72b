-- What `postdate feed` waits for: what may be handed over and nobody has claimed, and what a gateway has claimed of it but not yet handed over; of what was accepted by
-- $1 (later ones are no reason to wait longer). $2 the number that matters, $3 and $4 bounds of the ids.
select count(*) from (
    select from postdate.message m
     where m.hold = 'b' and m.next_at is null and m.id >= $3::uuid and m.id < $4::uuid and m.created_at <= $1::timestamptz
       and postdate.handover_owner(m.id, m.born) is distinct from -1
     limit $2::bigint) w
