-- In a transaction of pg_begin_by_index. One partition, [$1, $2): how many are delivered among the rows with an id below $4, $3 at most. Plain rows before the
-- frontier are, except those of open claims.
select greatest(0,
       (select count(*) from (select from postdate.message m
         where m.id >= $1::uuid and m.id < $2::uuid and m.id < $4::uuid
           and (m.state = 'delivered' or m.next_at is null and m.id <= (select f.to_id from postdate.frontier f))
         limit $3::bigint) s)
     - (select count(*) from (select from postdate.batch_now b, lateral (
           select from postdate.message m
            where m.id > b.from_id and m.id <= b.to_id and (m.id > coalesce(b.upto, b.from_id) or m.id = any (b.pending)) and m.id >= $1::uuid and m.id < $2::uuid and m.id < $4::uuid and m.next_at is null
            order by m.id limit $3::bigint) p
         limit $3::bigint) o))
