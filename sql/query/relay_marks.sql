-- The oldest note; the least low-water mark; the latest ping; all consumers; now; RabbitMQ's exit queue; its latest pings.
select min(coalesce(relay_at, '-infinity')), min(coalesce(relay_low, '-infinity')), max(relay_ping), coalesce(sum(relay_consumers), 0)::int,
       clock_timestamp(), (select last_hop_queue::int from postdate.meta), max(last_hop_ping_1), max(last_hop_ping_2)
  from postdate.instance
