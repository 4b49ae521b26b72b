-- When messages due soon were counted, and when all; the busiest second of all gateways; now.
select (select counted_at from postdate.forecast_round where name = 'soon'), (select counted_at from postdate.forecast_round where name = 'all'),
       coalesce((select max(peak) from (select sum(peak) as peak from postdate.slo_count where grain = 60 group by at
                 union all select peak from postdate.slo_count where grain = 3600) s), 0)::int8, clock_timestamp()
