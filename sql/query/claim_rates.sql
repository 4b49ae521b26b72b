-- What gateways know of rates. Those that were removed count while something may wait for them.
select exchange, routing_key, removed from postdate.rate order by removed, id limit 10000
