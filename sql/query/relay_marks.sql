-- A ping of the future was noted before the clock was set back. A row for each exit queue that there ever was, whether all gateways know of it or not: the oldest
-- note; the least low-water mark; its latest ping; its consumers; now; RabbitMQ's exit queue; its latest pings; how many exit queues are wanted, and bound (-1: the
-- bindings must be moved first); do all gateways know all of them?
select min(coalesce(relay_at, '-infinity')), min(coalesce(relay_low, '-infinity')),
       max(relay_pings[number]) filter (where relay_pings[number] <= clock_timestamp()), coalesce(sum(relay_consumers[number]), 0)::int,
       clock_timestamp(), last_hop_queue::int,
       max(last_hop_ping_1) filter (where last_hop_ping_1 <= clock_timestamp()), max(last_hop_ping_2) filter (where last_hop_ping_2 <= clock_timestamp()),
       exit_wanted::int, case when exit_bound = 0 and exit_queues > 1 then -1 else exit_bound end::int, coalesce(min(cardinality(relay_consumers)) >= exit_queues, false)
  from postdate.meta cross join generate_series(1, exit_queues) number left join postdate.instance on true
 group by number, last_hop_queue, exit_queues, exit_wanted, exit_bound
 order by number
