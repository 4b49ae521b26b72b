-- A range that was put back becomes the claim of instance $1; $2, $3 the days that are locked; $4: so many ms before its time. Its name, the first and last id that
-- may be left of it, and the position up to which all except pending rows are delivered.
select id, claimed_at, first_id, last_id, upto from postdate.batch_again($1::int, $2::timestamptz[], $3::timestamptz[], $4::int)
