-- $1 ids; $2, $3 their least and greatest due. Rows that somebody has locked are left: their receipt is offered again.
update postdate.message
   set state = 'delivered', settled_at = clock_timestamp(), owner = null, error = null
 where id = any ($1::uuid[]) and due >= $2::timestamptz and due <= $3::timestamptz
   and state in ('handed', 'claimed') and settled_at is null
