update postdate.idempotency set holder = null where principal = $1::text and key = $2::text and status is null and holder = pg_backend_pid()
