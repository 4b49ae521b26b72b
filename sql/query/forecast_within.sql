-- How much is due within each of $1 seconds from now.
select coalesce(sum(f.n), 0)::int8 from unnest($1::int8[]) with ordinality w (s, k)
  left join postdate.forecast f on f.grain = 60 and f.at >= date_trunc('minute', now()) and f.at < now() + w.s * interval '1 s'
 group by w.k order by w.k
