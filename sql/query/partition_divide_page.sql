-- In a transaction of pg_go_by_index.
-- The rows of the next page: behind the id $1 and before $2, $3 at most, and no more than $4 bytes but for the first.
with page as materialized (
    select id, octet_length(body) + octet_length(properties) + coalesce(pg_column_size(properties_json), 0) as size
      from postdate.message
     where id > $1::uuid and id < $2::uuid
     order by id
     limit $3::int),
fitting as (
    select id from (select *, sum(size) over (order by id rows unbounded preceding) - size as before from page) s
     where before < $4::bigint)
select * from postdate.message
 where id > $1::uuid and id < $2::uuid and id <= (select id from fitting order by id desc limit 1)
 order by id
