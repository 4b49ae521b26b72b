-- Failures, each counted once: fewer rows than were given where another gateway has recorded one of them meanwhile. $4 null: it is dead, and $10, $11 are its
-- content. A dead letter stays as it is. $13: deadlines, ms since 1970.
insert into postdate.lineage as l
       (id, queue, failed, message, expires_at, died_at, exchange, routing_key, reason, hash, failed_at, reasons, properties, body, refusals, deadline)
select t.id, t.queue, t.failed, t.message, clock_timestamp() + t.keep_ms * interval '1 millisecond', case when t.message is null then clock_timestamp() end,
       t.exchange, t.routing_key, t.reason, t.hash, array[clock_timestamp()], array[t.reason], t.properties, t.body, array[t.refusal],
       timestamptz '1970-01-01 00:00:00+00' + t.deadline_ms * interval '1 millisecond'
  from unnest($1::uuid[], $2::text[], $3::int4[], $4::uuid[], $5::int8[], $6::text[], $7::text[], $8::text[], $9::bytea[], $10::bytea[], $11::bytea[],
              $12::uuid[], $13::int8[])
       as t (id, queue, failed, message, keep_ms, exchange, routing_key, reason, hash, properties, body, refusal, deadline_ms)
    on conflict on constraint lineage_pkey do update
   set failed = excluded.failed, message = excluded.message, expires_at = excluded.expires_at, died_at = excluded.died_at, reason = excluded.reason, error = null,
       hash = excluded.hash, properties = excluded.properties, body = excluded.body, changed_at = clock_timestamp(), deadline = excluded.deadline,
       failed_at = (l.failed_at || excluded.failed_at)[greatest(1, cardinality(l.failed_at) - 98):],
       reasons = (l.reasons || excluded.reasons)[greatest(1, cardinality(l.reasons) - 98):],
       refusals = (l.refusals || excluded.refusals)[greatest(1, cardinality(l.refusals) - 8):]
 where l.failed < excluded.failed and l.died_at is null
