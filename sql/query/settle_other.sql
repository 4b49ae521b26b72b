-- Parameters as postdate.settle_other; how many rows.
select postdate.settle_other($1::uuid[], $2::uuid, $3::uuid, $4::int, $5::text[], $6::timestamptz[], $7::text[], $8::int[], $9::text[], $10::bool, $11::bool)
