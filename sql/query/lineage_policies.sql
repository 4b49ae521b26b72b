select pattern, attempts, (extract(epoch from first) * 1000)::int8, (extract(epoch from max) * 1000)::int8, (factor * 1000)::int8, jitter,
       'rejected' = any (reasons), 'delivery_limit' = any (reasons), 'expired' = any (reasons), 'maxlen' = any (reasons),
       (extract(epoch from keep_dead) * 1000)::int8
  from postdate.retry_policy
 order by pattern
 limit 10000
