-- receipts.sql around the rows that somebody has locked, which it returns.
with free as materialized (
    select id from postdate.message
     where id = any ($1::uuid[]) and due >= $2::timestamptz and due <= $3::timestamptz
       and state in ('handed', 'claimed') and hold = 'b' and settled_at is null
       for update skip locked),
settled as (
    update postdate.message
       set state = 'delivered', settled_at = clock_timestamp(), owner = null, error = null,
           attempts = attempts + (owner is not null)::int
     where id = any (array(select id from free)) and due >= $2::timestamptz and due <= $3::timestamptz)
select id from postdate.message
 where id = any ($1::uuid[]) and due >= $2::timestamptz and due <= $3::timestamptz
   and state in ('handed', 'claimed') and hold = 'b' and settled_at is null
   and id <> all (array(select id from free))
