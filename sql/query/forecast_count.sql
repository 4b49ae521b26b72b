select postdate.forecast_count($1::text, $2::int, $3::bigint)
