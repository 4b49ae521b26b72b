-- Of one partition, what is due in [$1, $2) and was delivered, the newest $3 at most: how many, and the 50th, 90th and 99th
-- percentile of settled_at minus due in ms. Ids sort like due times, so the primary key finds them.
select count(*),
       round(percentile_disc(0.5) within group (order by late))::bigint,
       round(percentile_disc(0.9) within group (order by late))::bigint,
       round(percentile_disc(0.99) within group (order by late))::bigint
  from (select extract(epoch from settled_at - due) * 1000 as late from postdate.message
         where due >= $1::timestamptz and due < $2::timestamptz
           and id >= (lpad(to_hex(floor(extract(epoch from $1::timestamptz) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
           and state = 'delivered'
         order by id desc limit $3::bigint) s
