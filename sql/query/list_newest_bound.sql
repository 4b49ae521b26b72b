-- As list_bound.sql, of those before id $3.
select id from postdate.message
 where id >= $1::uuid and id < $2::uuid and id < $3::uuid
 order by id desc
offset $4::int limit 1
