-- Which of $1 (due from $2 to $3) are neither settled nor waiting for any gateway: the broker holds them still, and somebody has them locked, or a
-- gateway other than $4 owns them and may not have written down yet that the broker holds them.
select id from postdate.message
 where id = any ($1::uuid[]) and due >= $2::timestamptz and due <= $3::timestamptz and settled_at is null
   and (state = 'handed' or owner is not null and owner is distinct from $4::int)
