-- Of one partition, what has an id in [$1, $2) and was delivered, the newest $3 at most: how many, and the 50th, 90th and 99th
-- percentile of settled_at minus due in ms. An id begins with its due time in ms, so the primary key leads to them, and
-- what is due later that day is not read.
select count(*),
       round(percentile_disc(0.5) within group (order by late))::bigint,
       round(percentile_disc(0.9) within group (order by late))::bigint,
       round(percentile_disc(0.99) within group (order by late))::bigint
  from (select extract(epoch from settled_at - due) * 1000 as late from postdate.message_now
         where id >= $1::uuid and id < $2::uuid
           and state = 'delivered'
         order by id desc limit $3::bigint) s
