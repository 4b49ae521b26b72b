-- Failures, each counted once: fewer rows than were given where another gateway has recorded one of them meanwhile. $4 null: it is dead, and $10, $11 are its content.
insert into postdate.lineage as l
       (id, queue, failed, message, expires_at, died_at, exchange, routing_key, reason, hash, failed_at, reasons, properties, body)
select t.id, t.queue, t.failed, t.message, clock_timestamp() + t.keep_ms * interval '1 millisecond', case when t.message is null then clock_timestamp() end,
       t.exchange, t.routing_key, t.reason, t.hash, array[clock_timestamp()], array[t.reason], t.properties, t.body
  from unnest($1::uuid[], $2::text[], $3::int4[], $4::uuid[], $5::int8[], $6::text[], $7::text[], $8::text[], $9::bytea[], $10::bytea[], $11::bytea[])
       as t (id, queue, failed, message, keep_ms, exchange, routing_key, reason, hash, properties, body)
    on conflict on constraint lineage_pkey do update
   set failed = excluded.failed, message = excluded.message, expires_at = excluded.expires_at, died_at = excluded.died_at, reason = excluded.reason, error = null,
       hash = excluded.hash, properties = excluded.properties, body = excluded.body, changed_at = clock_timestamp(),
       failed_at = (l.failed_at || excluded.failed_at)[greatest(1, cardinality(l.failed_at) - 98):],
       reasons = (l.reasons || excluded.reasons)[greatest(1, cardinality(l.reasons) - 98):]
 where l.failed < excluded.failed
