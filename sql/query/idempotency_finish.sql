-- Sorted, so that two transactions lock in one order. What is neither new nor this session's to answer is left out.
insert into postdate.idempotency as i (principal, key, body_hash, status, answer)
select * from unnest($1::text[], $2::text[], $3::bytea[], $4::int[], $5::bytea[]) t (principal, key, body_hash, status, answer) order by 1, 2
    on conflict (principal, key) do update set status = excluded.status, answer = excluded.answer
 where i.status is null and i.holder = pg_backend_pid() and i.body_hash = excluded.body_hash
