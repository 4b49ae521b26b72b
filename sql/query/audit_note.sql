select postdate.audit($1::text)
