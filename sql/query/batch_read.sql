-- The rest of batch $3, which this transaction has claimed again: ids from $1 up to $2; up to $4 only pending ones. Columns as claim.sql.
with b as materialized (select x.snapshot, x.skipped, coalesce(p.pending, '{}') as pending
                          from postdate.batch x left join postdate.batch_position p on p.batch = x.id where x.id = $3::bigint)
select m.due, m.id, m.due, false, 0, m.hold, m.exchange, m.routing_key, m.key, m.properties, m.body, false, m.properties_json::text, clock_timestamp(), m.deadline, false, false
  from postdate.message m
 where m.id >= $1::uuid and m.id <= $2::uuid and m.next_at is null and (m.id > $4::uuid or m.id in (select unnest(b.pending) from b))
   and m.id not in (select unnest(b.skipped) from b) and pg_visible_in_snapshot(m.born, (select b.snapshot from b))
 order by m.id
