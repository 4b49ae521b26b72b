-- $1 instance, $2 rows, $3 and $4 the days that are locked. Claimed messages are due about now, so they are released first.
select case when postdate.batch_release($1::int, $3::timestamptz[], $4::timestamptz[], $2::int) then true else postdate.handing_release($1::int, $3::timestamptz[], $4::timestamptz[]) end
