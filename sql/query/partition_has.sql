select exists (select from postdate.partition where parent = $1::text)
