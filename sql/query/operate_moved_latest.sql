select postdate.moved_latest($1::uuid)
