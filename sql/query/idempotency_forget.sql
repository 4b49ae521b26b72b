delete from postdate.idempotency where principal = $1::text and key = $2::text and status is null
