-- $1 ids; $2, $3 their least and greatest due. Waits for a row that somebody
-- else has locked.
update postdate.message
   set state = 'delivered', settled_at = clock_timestamp(), owner = null, error = null
 where id = any ($1::uuid[]) and due >= $2::timestamptz and due <= $3::timestamptz
   and state in ('handed', 'claimed') and settled_at is null
