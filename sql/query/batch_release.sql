-- $1 instance, $2 and $3 the days that are locked, $4 rows
select postdate.batch_release($1::int, $2::timestamptz[], $3::timestamptz[], $4::int)
