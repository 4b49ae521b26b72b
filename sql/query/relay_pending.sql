-- Which of $1 (from $2 until $3) are neither settled nor waiting for any gateway: the broker holds them still, and somebody has them locked, or a
-- gateway other than $4 owns them and may not have written down yet that the broker holds them.
select m.id from postdate.message_now m
 where m.id = any ($1::uuid[]) and m.id >= $2::uuid and m.id < $3::uuid and m.settled_at is null
   and (m.state = 'handed' or m.state = 'claimed' and m.owner is not null and m.owner is distinct from $4::int)
