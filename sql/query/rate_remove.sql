select postdate.rate_remove($1::text, $2::text)
