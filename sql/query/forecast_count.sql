select postdate.forecast_piece($1::text, $2::int, $3::bigint)
