-- In a transaction of pg_begin_by_index. Of one partition, delivered messages with an id in [$1, $2), the newest $3 at most: how many, and the 50th, 90th and 99th
-- percentile of settled_at minus due in ms. An id begins with its due time in ms, so the primary key leads to them, and later rows of that day are not read. Plain
-- rows are read batch by batch, because the batch has the time of delivery.
select count(*),
       round(percentile_disc(0.5) within group (order by late))::bigint,
       round(percentile_disc(0.9) within group (order by late))::bigint,
       round(percentile_disc(0.99) within group (order by late))::bigint
  from (select extract(epoch from d.settled_at - d.due) * 1000 as late
          from ((select id, due, settled_at from postdate.message
                  where id >= $1::uuid and id < $2::uuid and state = 'delivered'
                  order by id desc limit $3::bigint)
                union all
                (select m.id, m.due, coalesce(b.settled_at, o.settled_at)
                   from postdate.batch b left join postdate.batch_position o on o.batch = b.id, lateral (
                        select p.id, p.due from postdate.message p
                         where p.id >= $1::uuid and p.id < $2::uuid and p.id > b.from_id and p.id <= case when b.done then b.to_id else o.upto end and (b.done or p.id <> all (o.pending))
                           and p.next_at is null and coalesce(pg_visible_in_snapshot(p.born, b.snapshot), true) and p.id <> all (b.skipped)
                         order by p.id desc limit $3::bigint) m
                  where b.to_id >= $1::uuid and b.from_id < $2::uuid
                  order by b.to_id desc limit $3::bigint)) d
         order by d.id desc limit $3::bigint) s
