update postdate.idempotency i set status = t.status, answer = t.answer
  from unnest($1::text[], $2::text[], $3::int[], $4::bytea[]) as t (principal, key, status, answer)
 where i.principal = t.principal and i.key = t.key
