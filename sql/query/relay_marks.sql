-- A ping of the future was noted before the clock was set back.
-- The oldest note; the least low-water mark; the latest ping; all consumers; now; RabbitMQ's exit queue; its latest pings.
select min(coalesce(relay_at, '-infinity')), min(coalesce(relay_low, '-infinity')), max(relay_ping) filter (where relay_ping <= clock_timestamp()), coalesce(sum(relay_consumers), 0)::int,
       clock_timestamp(), (select last_hop_queue::int from postdate.meta),
       max(last_hop_ping_1) filter (where last_hop_ping_1 <= clock_timestamp()), max(last_hop_ping_2) filter (where last_hop_ping_2 <= clock_timestamp())
  from postdate.instance
