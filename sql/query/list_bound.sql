-- The last of the next $4 + 1 messages of one partition, [$1, $2) by due, after id $3 and up to $5; none: fewer are left.
select id from postdate.message
 where due >= $1::timestamptz and due < $2::timestamptz and id > $3::uuid and id <= $5::uuid
 order by id
offset $4::int limit 1
