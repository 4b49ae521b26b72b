update postdate.message
   set state = 'superseded', settled_at = clock_timestamp(), body = '', properties = ''
 where due = $1::timestamptz and id = $2::uuid and state = 'scheduled' and owner is null
