select postdate.forecast_skip($1::text)
