-- Those of $1 (from $2 until $3) of which there is a row, and whether they are neither settled nor waiting for any gateway: the broker holds them still, and somebody
-- has them locked, or a gateway other than $4 has claimed them.
select id, settled_at is null and (state = 'handed' or owner is not null and owner is distinct from $4::int) from postdate.message
 where id = any ($1::uuid[]) and id >= $2::uuid and id < $3::uuid
