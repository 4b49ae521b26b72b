-- Messages due from $1 to $2, by minute (counted from $1) and by their limit: the rate's exchange and billionths of messages a second (0: it is paused), or null,
-- null. Before the first minute are the messages that wait for slots now. $3 exchanges (null: all); $4, $5 rates as they might be: exchanges, billionths of messages
-- a second.
with assumed as materialized (
    select v.pattern, replace(replace(replace(replace(v.pattern, E'\\', E'\\\\'), '%', E'\\%'), '_', E'\\_'), '*', '%') as names, v.n / 1e9::float8 as per_second from unnest($4::text[], $5::int8[]) v (pattern, n)),
counted as materialized (
    select f.at, f.exchange, sum(f.n) as n
      from postdate.forecast_minute f
     where f.hour > $1::timestamptz - interval '1 hour' and f.hour < $2::timestamptz and f.at >= $1::timestamptz and f.at < $2::timestamptz
       and ($3::text[] is null or f.exchange = any ($3::text[]))
     group by 1, 2),
limited as materialized (
    select x.exchange, coalesce(w.pattern, r.exchange) as pattern, case when w.pattern is not null then w.per_second when r.paused then 0 else r.per_second end as per_second
      from (select distinct exchange from counted) x
      left join lateral (
           select v.pattern, v.per_second from assumed v
            where x.exchange like v.names order by postdate.rate_rank(v.pattern) desc limit 1) w on true
      left join postdate.rate r on w.pattern is null and r.id = postdate.rate_of(x.exchange, '')),
queued as (
    select -1 as minute, postdate.rate_waiting(r.id, 1000000) as n, coalesce(w.pattern, r.exchange) as pattern,
           coalesce(w.per_second, case when r.paused then 0 else r.per_second end) as per_second
      from postdate.rate r
      left join lateral (select v.pattern, v.per_second from assumed v where v.pattern = r.exchange limit 1) w on true
     where not r.removed and r.routing_key = '*' and $1::timestamptz <= now()
       and ($3::text[] is null or exists (select from unnest($3::text[]) e where e like r.exchange_like)))
select q.minute::int8, q.n::int8, q.pattern, (q.per_second * 1e9)::int8 from queued q where q.n > 0
 union all
select floor(date_part('epoch', c.at - $1::timestamptz) / 60)::int8, sum(c.n)::int8, l.pattern, (l.per_second * 1e9)::int8
  from counted c join limited l using (exchange)
 group by 1, 3, 4 having sum(c.n) > 0
 order by 1
