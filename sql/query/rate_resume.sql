select postdate.rate_resume($1::text, $2::text)
