update postdate.message
   set state = 'cancelled', settled_at = clock_timestamp(), body = '', properties = '', error = null
 where due = $1::timestamptz and id = $2::uuid and state in ('scheduled', 'failed') and owner is null
returning exchange, key
