-- $1 ids; $2, $3 their least and greatest due (prunes partitions); $4 instance
update postdate.message
   set state = 'delivered', settled_at = clock_timestamp(), owner = null, error = null, attempts = attempts + 1
 where id = any ($1::uuid[]) and due >= $2::timestamptz and due <= $3::timestamptz and owner = $4::int
