-- What receipts settled since $5: $1, $2 least and greatest id, $3, $4 least and greatest due, $6 most. Attempts: what a gateway
-- published, too, was confirmed then.
select id from postdate.message
 where id >= $1::uuid and id <= $2::uuid and due >= $3::timestamptz and due <= $4::timestamptz
   and state = 'delivered' and hold = 'b' and attempts <= 1 and settled_at >= $5::timestamptz
 limit $6::bigint
