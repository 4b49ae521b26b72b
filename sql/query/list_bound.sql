-- The last of the next $4 + 1 messages of one partition, [$1, $2) by due, after id $3; none: fewer are left.
select id from postdate.message
 where due >= $1::timestamptz and due < $2::timestamptz and id > $3::uuid
 order by id
offset $4::int limit 1
