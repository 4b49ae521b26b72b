-- As claims_release, for one instance ($3) that is about to leave.
update postdate.message m set owner = null, next_at = next_at + case when hold = 'b' and next_at > clock_timestamp() + interval '1 s' then interval '1.5 s' else interval '0' end
 where m.id = any (array(
    select id from postdate.message where owner = $3::int and due >= $1::timestamptz and due <= $2::timestamptz for update skip locked))
   and m.due >= $1::timestamptz and m.due <= $2::timestamptz
