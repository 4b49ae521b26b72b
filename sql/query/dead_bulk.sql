-- One chunk: $1 to $11 as postdate.dead_page; $12 what is done (null: they are only counted): drop, or requeue, the first at $13 µs since 1970, each further one $14 µs later.
-- How many, how many were changed, the first, and the last: when it died, in µs since 1970, its id and its queue.
with page as materialized (
    select d.id, d.queue, (extract(epoch from d.died_at) * 1000000)::int8 as died_us, row_number() over (order by d.died_at, d.id, d.queue) as n
      from postdate.dead_page($1::int8, $2::uuid, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text[], $9::uuid[], $10::int8, $11::int) d),
done as materialized (
    select count(*) as n from page p
     where case $12::text when 'drop' then postdate.dead_drop(p.id, p.queue)
                          when 'requeue' then postdate.dead_requeue(p.id, p.queue, timestamptz '1970-01-01 00:00:00+00' + ($13::int8 + (p.n - 1) * $14::int8) * interval '1 us')
                          else false end)
select l.n, d.n, (select id from page where n = 1), l.died_us, l.id, l.queue from (select * from page order by n desc limit 1) l, done d
