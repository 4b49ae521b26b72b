-- $1 horizon, $2 rows, $3 bytes, $4 instance, $5 and $6 the days that are locked. Columns as claim.sql, the batch, and when it was claimed.
select due, id, due, false, 0, hold, exchange, routing_key, key, properties, body, false, properties_json, clock, deadline, batch, claimed_at
  from postdate.claim_plain($1::timestamptz, $2::int, $3::bigint, $4::int, $5::timestamptz[], $6::timestamptz[])
