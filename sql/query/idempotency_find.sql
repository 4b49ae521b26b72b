select t.n, i.body_hash, coalesce(i.status, 0), i.answer
  from unnest($1::text[], $2::text[]) with ordinality t (principal, key, n)
  join postdate.idempotency i on i.principal = t.principal and i.key = t.key
