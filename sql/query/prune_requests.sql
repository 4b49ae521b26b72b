delete from postdate.idempotency
 where (principal, key) in (select principal, key from postdate.idempotency where created_at < now() - interval '24 h' order by created_at limit 10000)
