-- In a transaction of pg_begin_by_index.
-- One partition, [$1, $2): how many rows in each of the states that an index finds, so the rest of the day is not read. At most: $3 handed, $4 claimed,
-- $5 cancelled, $6 superseded, $7 failed, $8 expired. And how many were refused or are in doubt, and are tried again, $9 at most.
select (select count(*) from (select from postdate.message where id >= $1::uuid and id < $2::uuid and state = 'handed' and settled_at is null order by due limit $3::bigint) s),
       (select count(*) from (select from postdate.message where id >= $1::uuid and id < $2::uuid and owner is not null order by owner limit $4::bigint) s)
       + (select count(*) from (select from postdate.batch_now b, lateral (
                                 select from postdate.message m
                                  where m.id > b.from_id and m.id <= b.to_id and (m.id > coalesce(b.upto, b.from_id) or m.id = any (b.pending)) and m.id >= $1::uuid and m.id < $2::uuid and m.next_at is null
                                  order by m.id limit $4::bigint) p
                               limit $4::bigint) s),
       (select count(*) from (select from postdate.message where id >= $1::uuid and id < $2::uuid and state = 'cancelled' and state <> 'delivered' and settled_at is not null order by settled_at limit $5::bigint) s),
       (select count(*) from (select from postdate.message where id >= $1::uuid and id < $2::uuid and state = 'superseded' and state <> 'delivered' and settled_at is not null order by settled_at limit $6::bigint) s),
       (select count(*) from (select from postdate.message where id >= $1::uuid and id < $2::uuid and state = 'failed' and state <> 'delivered' and settled_at is not null order by settled_at limit $7::bigint) s),
       (select count(*) from (select from postdate.message where id >= $1::uuid and id < $2::uuid and state = 'expired' and state <> 'delivered' and settled_at is not null order by settled_at limit $8::bigint) s),
       (select count(*) from (select state from postdate.message where id >= $1::uuid and id < $2::uuid and error is not null and settled_at is null order by id limit $9::bigint) s where state <> 'handed')
