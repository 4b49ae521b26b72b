-- $1, $2 the days that are locked, $3 rows.
select postdate.batch_scatter($1::timestamptz[], $2::timestamptz[], $3::int)
