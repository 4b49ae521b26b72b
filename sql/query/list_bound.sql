-- In a transaction of pg_begin_by_index.
-- The last of the next $4 + 1 messages of one partition, [$1, $2), after id $3; none: fewer are left.
select id from postdate.message
 where id >= $1::uuid and id < $2::uuid and id > $3::uuid
 order by id
offset $4::int limit 1
