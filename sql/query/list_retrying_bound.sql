-- As list_bound.sql, of what had an attempt that failed.
select id from postdate.message
 where id >= $1::uuid and id < $2::uuid and id > $3::uuid and error is not null and settled_at is null
 order by id
offset $4::int limit 1
