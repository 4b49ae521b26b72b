-- $1 grain in s, $2 from, $3 until, $4 step in ms: what is due, by step (counted from $2) and exchange; $5 exchanges (null: all). The greatest come first.
select floor(date_part('epoch', f.at - $2::timestamptz) * 1000 / $4::bigint)::int8, f.exchange, sum(f.n)::int8
  from postdate.forecast f
 where f.grain = $1::int and f.at >= $2::timestamptz and f.at < $3::timestamptz and ($5::text[] is null or f.exchange = any ($5::text[]))
 group by 1, 2 having sum(f.n) > 0
 order by 1, 3 desc
