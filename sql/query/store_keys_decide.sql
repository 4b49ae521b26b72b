-- $1 exchanges, $2 keys, $3 due times, $4 ids, $5 on_conflict, $6 key memory in ms. Of each, in this order: the message that has the
-- key, or had it; what became of it.
select t.holder, t.outcome = 'taken', t.outcome = 'had'
  from postdate.keys_decide($1::text[], $2::text[], $3::timestamptz[], $4::uuid[], $5::text[], $6::bigint) d,
       unnest(d.holders, d.outcomes) with ordinality t (holder, outcome, n)
