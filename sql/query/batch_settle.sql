-- $1 batches, $2 how far each is settled, $3 what then, $4 their instance; $5, $6 of which batch what is pending before that, $7 when they were claimed.
-- Returns those that were missed.
select * from unnest(postdate.batch_settle($1::bigint[], $2::uuid[], $3::int[], $4::int, $5::bigint[], $6::uuid[], $7::timestamptz[]))
