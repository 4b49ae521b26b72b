-- Messages whose receipts came, but which the broker may have lost when it died: they wait again, as ones in doubt. $1 ids; $2, $3 their
-- least and greatest due; $4 why; $5: also those that are delivered already. Around rows that somebody has locked. Returns each row that is
-- concerned, and whether it is locked and unchanged. What a gateway owns it is publishing, with a confirm: that is left alone.
with free as materialized (
    select id from postdate.message
     where id = any ($1::uuid[]) and due >= $2::timestamptz and due <= $3::timestamptz
       and ((state = 'handed' and settled_at is null) or (state = 'delivered' and $5::bool and hold = 'b'))
       for update skip locked),
doubted as (
    update postdate.message
       set state = 'claimed', settled_at = null, owner = null, next_at = greatest(clock_timestamp(), due), error = $4::text
     where id = any (array(select id from free)) and due >= $2::timestamptz and due <= $3::timestamptz)
select id, false from free
union all
select id, true from postdate.message
 where id = any ($1::uuid[]) and due >= $2::timestamptz and due <= $3::timestamptz
   and ((state = 'handed' and settled_at is null) or (state = 'delivered' and $5::bool and hold = 'b'))
   and id <> all (array(select id from free))
