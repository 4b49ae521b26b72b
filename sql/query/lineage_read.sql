-- $1 ids, $2 queues, $3 refusals: the records of these lineages, and whether that rejection is among the last counted ones, before $4. The first column tells which
-- one.
select t.n::int4, l.failed, l.died_at is not null, t.refusal = any (l.refusals) and l.changed_at < $4::timestamptz, l.hash
  from unnest($1::uuid[], $2::text[], $3::uuid[]) with ordinality as t (id, queue, refusal, n)
  join postdate.lineage l on l.id = t.id and l.queue = t.queue
