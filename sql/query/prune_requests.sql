delete from postdate.idempotency where created_at < now() - interval '24 h'
