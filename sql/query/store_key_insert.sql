-- Takes the keys that are free; the others are left to sql/pipeline/store.c, which sends them sorted, so that two batches
-- lock in one order and the answer comes in the order of the question.
insert into postdate.key (exchange, key, due, id)
select * from unnest($1::text[], $2::text[], $3::timestamptz[], $4::uuid[]) as t (exchange, key, due, id)
    on conflict do nothing
returning id
