-- The rates that have slots now and something that waits for them, in the order of their turns; those that were removed last. $1, $2: bounds of ids (prune
-- partitions). $4: slots are taken so many ms ahead. $3: also search below the last claimed one (late commits, retries, formerly locked rows), else skip its dead
-- index entries. The third column: ms from one slot to the next. The order makes the planner read the index of waiting messages, whatever the statistics.
select r.id, r.removed, coalesce(1000 / nullif(r.per_second, 0), 0)::bigint
  from postdate.rate r
 where not r.paused and postdate.rate_next(r.slot_at, r.per_second, clock_timestamp()) <= clock_timestamp() + $4::int * interval '1 ms'
   and (select true from postdate.message m
         where m.rate = r.id and m.settled_at is null and m.owner is null and m.id >= $1::uuid and m.id < $2::uuid and m.id >= case when $3::bool then $1::uuid else postdate.rate_from(r.from_id, clock_timestamp()) end
         order by m.rate, m.id limit 1)
 order by r.removed, r.slot_at
