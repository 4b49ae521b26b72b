select postdate.rate_pause($1::text, $2::text)
