-- What the broker let go, but found no way for: the gateway publishes it, and from now on waits itself (hold 'g'), so that its receipt settles
-- nothing, whether it is read before or after. $1 ids; $2, $3 their least and greatest due; $4 why. Around rows that somebody has locked. Returns
-- each row that is concerned, and whether it is locked and unchanged. hold = 'b': told twice, it counts once.
--
-- Certainly nobody got it if it was only handed over (one attempt); `delivered` is what the receipt said then. Where a gateway may have published
-- it, too, it is in doubt. What a gateway owns it is publishing itself, or it has just handed it over: then rescue takes it.
with free as materialized (
    select id from postdate.message
     where id = any ($1::uuid[]) and due >= $2::timestamptz and due <= $3::timestamptz
       and hold = 'b' and state in ('handed', 'claimed', 'delivered')
       for update skip locked),
changed as (
    update postdate.message m
       set hold = 'g', settled_at = null,
           state = case when state = 'handed' or (state = 'delivered' and attempts <= 1) then 'scheduled' else 'claimed' end::postdate.message_state,
           next_at = case when state = 'claimed' then next_at else greatest(clock_timestamp(), due) end,
           error = case when state = 'claimed' then error else $4::text end
     where id = any (array(select id from free)) and due >= $2::timestamptz and due <= $3::timestamptz)
select id, false from free
union all
select id, true from postdate.message
 where id = any ($1::uuid[]) and due >= $2::timestamptz and due <= $3::timestamptz
   and hold = 'b' and state in ('handed', 'claimed', 'delivered')
   and id <> all (array(select id from free))
