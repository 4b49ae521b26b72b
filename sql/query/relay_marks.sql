-- The oldest note; the least low-water mark; the latest ping; all consumers; now.
select min(coalesce(relay_at, '-infinity')), min(coalesce(relay_low, '-infinity')), max(relay_ping), coalesce(sum(relay_consumers), 0)::int,
       clock_timestamp()
  from postdate.instance
