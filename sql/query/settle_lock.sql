-- Locks those of $1 that nobody else holds. Parameters as settle_delivered.
select id from postdate.message
 where id = any ($1::uuid[]) and due >= $2::timestamptz and due <= $3::timestamptz and (owner is not distinct from $4::int and (owner is not null or state = 'claimed')
        or $5::bool and owner is null and state in ('handed', 'claimed') and settled_at is null)
   for update skip locked
