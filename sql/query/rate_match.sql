-- The rate that counts for messages with exchange $1 and routing key $2. Columns as in rate_read.sql.
select r.exchange, r.routing_key, r.per_second, r.burst, r.paused, r.waiting, r.drained_at, r.changed_at, r.changed_by
  from postdate.rate x join postdate.rates r on r.exchange = x.exchange and r.routing_key = x.routing_key
 where x.id = postdate.rate_of($1::text, $2::text)
