-- Parameters as postdate.dead_page.
select id, queue, exchange, routing_key, reason, failed, (extract(epoch from died_at) * 1000000)::int8, expires_at, coalesce(octet_length(body), 0)::int8
  from postdate.dead_page($1::int8, $2::uuid, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text[], $9::uuid[], $10::int8, $11::int)
