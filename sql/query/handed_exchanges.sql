-- Where to what the broker holds will go. $1, $2 as handed_count.sql; $3 exchanges at most.
select exchange from postdate.message
 where state = 'handed' and settled_at is null and due >= $1::timestamptz and due <= $2::timestamptz
 group by exchange
 limit $3::bigint
