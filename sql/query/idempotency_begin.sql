-- Takes the keys that are new; sent sorted, so that two transactions lock in one order. Returns those taken.
insert into postdate.idempotency (principal, key, body_hash)
select * from unnest($1::text[], $2::text[], $3::bytea[]) as t (principal, key, body_hash)
    on conflict do nothing
returning principal, key
