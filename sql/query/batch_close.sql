-- $1: what was due before and was not released is lost; $2 rows
select postdate.handed_close($1::timestamptz, $2::int)
