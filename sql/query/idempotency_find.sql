select body_hash, coalesce(status, 0), answer from postdate.idempotency where principal = $1::text and key = $2::text
