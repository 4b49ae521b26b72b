-- $1 ids, $2 queues: what is known of these lineages. The first column tells which one.
select t.n::int4, l.failed, l.hash, l.exchange, l.routing_key
  from unnest($1::uuid[], $2::text[]) with ordinality as t (id, queue, n)
  join postdate.lineage l on l.id = t.id and l.queue = t.queue
