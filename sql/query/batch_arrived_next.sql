-- $1 the least due time, $2 rows, $3 bytes
select lane::text, from_born::text, to_born::text, from_id, to_id, snapshot::text from postdate.claim_arrived($1::timestamptz, $2::int, $3::bigint)
