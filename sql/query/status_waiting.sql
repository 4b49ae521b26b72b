-- In a transaction of pg_begin_by_index.
-- One partition: the next attempt; how many should have been tried a second ago ($3 at most), and since when. What a gateway holds that no
-- longer lives ($4: its lease, ms) waits, too. As instance_release_lock.sql it looks between the owners that live.
with dead as materialized (
    select o.next_at
      from (select lag(id, 1, 0) over (order by id) as above, id as below
              from (select i.id from postdate.instance i where postdate.instance_lives(i, $4::bigint) union all select 2147483647) x) gap,
           lateral (select m.next_at from postdate.message m
                     where m.owner > gap.above and m.owner < gap.below and m.id >= $1::uuid and m.id < $2::uuid
                       and m.next_at < clock_timestamp() - interval '1 s'
                     order by m.owner limit $3::bigint) o
     limit $3::bigint),
plain_dead as materialized (
    select p.due as next_at
      from postdate.batch_now b, lateral (
           select m.due from postdate.message m
            where m.id > b.from_id and m.id <= b.to_id and (m.id > coalesce(b.upto, b.from_id) or m.id = any (b.pending)) and m.id >= $1::uuid and m.id < $2::uuid
              and m.next_at is null and m.due < clock_timestamp() - interval '1 s'
            order by m.id limit $3::bigint) p
     where not exists (select from postdate.instance i where i.id = b.owner and postdate.instance_lives(i, $4::bigint))
     limit $3::bigint),
plain as materialized (
    select m.due as next_at
      from postdate.message m
     where m.id > (select f.to_id from postdate.frontier f) and m.id >= $1::uuid and m.id < $2::uuid and m.next_at is null
       and m.id < postdate.id_floor(now() - interval '1 s')
     order by m.id limit $3::bigint),
first as materialized (
    select next_at from postdate.message
     where owner is null and settled_at is null and next_at < 'infinity' and id >= $1::uuid and id < $2::uuid
     order by next_at limit 1),
overdue as materialized (
    select next_at from dead union all select next_at from plain_dead union all select next_at from plain)
select least((select next_at from first),
         (select m.due from postdate.message m
           where m.id > (select f.to_id from postdate.frontier f) and m.id >= $1::uuid and m.id < $2::uuid and m.next_at is null
             and m.id <= (select coalesce(postdate.id_ceiling(min(n.next_at)), $2::uuid) from first n)
           order by m.id limit 1)),
       (select count(*) from overdue) + (select count(*) from (select from postdate.message
         where owner is null and settled_at is null and id >= $1::uuid and id < $2::uuid
           and next_at < clock_timestamp() - interval '1 s' order by next_at limit $3::bigint) o),
       least((select min(next_at) from overdue),
             (select next_at from postdate.message
               where owner is null and settled_at is null and id >= $1::uuid and id < $2::uuid
                 and next_at < clock_timestamp() - interval '1 s' order by next_at limit 1))
