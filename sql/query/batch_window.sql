-- $1 its end, $2 rows
select postdate.window_move($1::timestamptz, $2::int)
