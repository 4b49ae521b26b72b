-- $1 instance, $2 rows, $3 and $4 the days that are locked
select postdate.batch_release($1::int, $3::timestamptz[], $4::timestamptz[], $2::int)
