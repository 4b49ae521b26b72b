-- $1 horizon, $2 rows, $3 bytes, $4 instance. Columns as claim.sql, and the batch.
select due, id, due, false, 0, hold, exchange, routing_key, key, properties, body, false, properties_json, clock, deadline, batch
  from postdate.claim_plain($1::timestamptz, $2::int, $3::bigint, $4::int)
