-- Bounded twice: by the ids [$1, $2) of the days in which the broker can hold anything, and by the number that matters ($3).
select count(*) from (
    select from postdate.message m
     where m.hold = 'b' and m.next_at is null and m.id >= $1::uuid and m.id < $2::uuid and postdate.handover_owner(m.id, m.born) = -1
     limit $3::bigint) h
