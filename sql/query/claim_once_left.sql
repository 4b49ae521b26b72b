-- In a transaction of pg_begin_by_index.
-- What `postdated --once` still waits for: of what was accepted by $1, all that is due to be tried by $2, whoever has claimed it; and what the broker should have let
-- go long since by $1, which is to be rescued. $3: the number that matters. $4, $5: the first ids after $1 and $2.
select (select count(*) from (
            select from postdate.message
             where owner is null and settled_at is null and state in ('scheduled', 'claimed')
               and next_at <= $2::timestamptz and id < $5::uuid and created_at <= $1::timestamptz
             order by next_at limit $3::bigint) w)
     + (select count(*) from (
            select from postdate.message
             where owner is not null and settled_at is null and id < $5::uuid and created_at <= $1::timestamptz
             order by owner limit $3::bigint) c)
     + (select count(*) from (
            select from postdate.message m
             where m.id > (select f.to_id from postdate.frontier f) and m.id < $5::uuid and m.next_at is null and m.created_at <= $1::timestamptz
             order by m.id limit $3::bigint) p)
     + (select count(*) from (
            select from postdate.batch_now b, lateral (
                   select from postdate.message m
                    where m.id > b.from_id and m.id <= b.to_id and (m.id > coalesce(b.upto, b.from_id) or m.id = any (b.pending)) and m.id < $5::uuid and m.next_at is null and m.created_at <= $1::timestamptz
                    order by m.id limit $3::bigint) p
             limit $3::bigint) b)
     + (select count(*) from (
            select from postdate.handing h, unnest(h.ids) i (id), postdate.message m
             where m.id = i.id and m.id < $5::uuid and m.created_at <= $1::timestamptz
             limit $3::bigint) h)
     + (select count(*) from postdate.rate r, lateral ( -- a slower rate would look like a round without progress
            select from postdate.message m
             where m.rate = r.id and m.settled_at is null and m.id < $5::uuid and m.created_at <= $1::timestamptz
             order by m.id limit $3::bigint) q
         where not r.paused and r.per_second >= 0.1)
     + (select count(*) from postdate.late)
     + (select case when k.looked < f.to_id then 1 else 0 end from (select m.looked from postdate.late_mark m order by m.id desc limit 1) k, postdate.frontier f),
       (select count(*) from (
            select from postdate.message
             where owner is null and settled_at is null and state = 'handed'
               and next_at <= $1::timestamptz and id < $4::uuid
             order by next_at limit $3::bigint) h)
