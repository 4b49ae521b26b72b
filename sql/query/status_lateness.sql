-- Of one partition, what is due in [$1, $2) and was delivered, the newest $3 at most: how many, and the 50th, 90th and 99th
-- percentile of settled_at minus due in ms. An id begins with its due time in ms, so the primary key leads to them, and
-- what is due later that day is not read.
select count(*),
       round(percentile_disc(0.5) within group (order by late))::bigint,
       round(percentile_disc(0.9) within group (order by late))::bigint,
       round(percentile_disc(0.99) within group (order by late))::bigint
  from (select extract(epoch from settled_at - due) * 1000 as late from postdate.message
         where due >= $1::timestamptz and due < $2::timestamptz
           and id >= (lpad(to_hex((extract(epoch from $1::timestamptz) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
           and id < (lpad(to_hex((extract(epoch from $2::timestamptz) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
           and state = 'delivered'
         order by id desc limit $3::bigint) s
