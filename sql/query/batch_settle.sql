-- $1 batches, $2 their positions, $3 their ends, $4 their instance; $5, $6 pending messages before that: batch and id, $7 when the batches were claimed. Returns
-- those that were missed.
select * from unnest(postdate.batch_settle($1::bigint[], $2::uuid[], $3::int[], $4::int, $5::bigint[], $6::uuid[], $7::timestamptz[]))
