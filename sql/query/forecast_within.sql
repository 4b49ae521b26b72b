-- How much is due within each of $1 seconds from now.
with minute as materialized (
    select f.at, sum(f.n) as n from postdate.forecast_minute f
     where f.hour > now() - interval '2 hours' and f.hour < now() + (select max(s) from unnest($1::int8[]) s) * interval '1 s' and f.at >= date_trunc('minute', now())
     group by 1)
select coalesce(sum(m.n), 0)::int8 from unnest($1::int8[]) with ordinality w (s, k)
  left join minute m on m.at < now() + w.s * interval '1 s'
 group by w.k order by w.k
