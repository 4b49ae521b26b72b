select postdate.forecast_correct($1::timestamptz, $2::int, $3::bigint)
