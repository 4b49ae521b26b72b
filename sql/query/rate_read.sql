-- All rates; or ($1 not null) the one of this exchange and ($2) routing key, or ($3) the one that counts for messages with these.
select r.exchange, r.routing_key, r.per_second, r.burst, r.paused, r.waiting, r.drained_at, r.changed_at, r.changed_by
  from postdate.rates r
 where $1::text is null
    or case when $3::bool then (r.exchange, r.routing_key) = (select x.exchange, x.routing_key from postdate.rate x where x.id = postdate.rate_of($1::text, $2::text))
            else (r.exchange, r.routing_key) = ($1::text, $2::text) end
 order by r.exchange, r.routing_key
 limit 10000
