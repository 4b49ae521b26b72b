-- $1 grain in s, $2 from, $3 until, $4 step in ms: messages due, by step (counted from $2) and exchange, with the exchange's place: 1 has the most in all; $5
-- exchanges (null: all).
with kept as (
    select f.at, f.exchange, f.n from postdate.forecast f
     where $1::int > 60 and f.at >= $2::timestamptz and f.at < $3::timestamptz
     union all
    select f.at, f.exchange, f.n from postdate.forecast_minute f
     where $1::int = 60 and f.hour > $2::timestamptz - interval '1 hour' and f.hour < $3::timestamptz and f.at >= $2::timestamptz and f.at < $3::timestamptz),
counted as materialized (
    select floor(date_part('epoch', f.at - $2::timestamptz) * 1000 / $4::bigint)::int8 as step, f.exchange, sum(f.n)::int8 as n
      from kept f
     where $5::text[] is null or f.exchange = any ($5::text[])
     group by 1, 2 having sum(f.n) > 0),
placed as (
    select exchange, row_number() over (order by sum(n) desc, exchange) as place from counted group by exchange)
select c.step, c.exchange, c.n, p.place from counted c join placed p using (exchange) order by 1, 4
