-- $1 horizon, $2 rows, $3 bytes, $4 and $5 the days that are locked.
select begins, ends from postdate.claim_next($1::timestamptz, $2::int, $3::bigint, $4::timestamptz[], $5::timestamptz[])
