-- For each length in ms of $1, in order: deliveries in the minutes, or for older ones in the hours, that overlap it. The last column is when the first of all began.
select coalesce(sum(s.delivered), 0)::bigint, coalesce(sum(s.late), 0)::bigint, coalesce(sum(s.again), 0)::bigint,
       coalesce(sum(s.again_late), 0)::bigint, coalesce(sum(s.again_later), 0)::bigint,
       (select min(at) from postdate.slo_count), clock_timestamp()
  from unnest($1::bigint[]) with ordinality w (ms, n)
  left join postdate.slo_count s on s.at + s.grain * interval '1 s' > now() - w.ms * interval '1 ms'
                                 and s.at > now() - w.ms * interval '1 ms' - interval '1 hour'
                                 and s.at <= now() -- not deliveries while the clock was ahead
 group by w.n order by w.n
