-- Up to when the counts are right, when the slow count was through; the busiest second of all gateways; now.
select folded_at, counted_at,
       coalesce((select max(peak) from (select sum(peak) as peak from postdate.slo_count where grain = 60 group by at
                 union all select peak from postdate.slo_count where grain = 3600) s), 0)::int8, clock_timestamp()
  from postdate.forecast_state
