select postdate.forecast_fold($1::bigint)
