-- What is due from $1 to $2, by minute (counted from $1); $3 exchanges (null: all).
select (date_part('epoch', f.at - $1::timestamptz) / 60)::int8, sum(f.n)::int8
  from postdate.forecast f
 where f.grain = 60 and f.at >= $1::timestamptz and f.at < $2::timestamptz and ($3::text[] is null or f.exchange = any ($3::text[]))
 group by 1 having sum(f.n) > 0
 order by 1
