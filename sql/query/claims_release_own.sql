-- As claims_release, for one instance ($2) that is about to leave.
update postdate.message m set owner = null
 where m.id = any (array(
    select id from postdate.message where owner = $2::int and due <= $1::timestamptz for update skip locked))
   and m.due <= $1::timestamptz
