-- Reasons as the sum of core/message/retry_policy.h.
select pattern, attempts, (extract(epoch from first) * 1000)::int8, (extract(epoch from max) * 1000)::int8, factor, jitter,
       coalesce((select sum(case r when 'rejected' then 1 when 'delivery_limit' then 2 when 'expired' then 4 when 'maxlen' then 8 else 0 end) from unnest(reasons) r), 0)::int4,
       (extract(epoch from keep_dead) * 1000)::int8
  from postdate.retry_policy
 order by pattern
 limit 10000
