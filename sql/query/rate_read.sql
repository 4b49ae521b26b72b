-- All rates, or ($1 not null) the one of this exchange and ($2) routing key.
select exchange, routing_key, per_second, burst, paused, waiting, drained_at, changed_at, changed_by
  from postdate.rates
 where $1::text is null or (exchange = $1::text and routing_key = $2::text)
 order by exchange, routing_key
 limit 10000
