-- $1 id, $2 queue: when and why deliveries failed, the first one first.
select t.at, t.reason
  from postdate.lineage l, unnest(l.failed_at, l.reasons) with ordinality as t (at, reason, n)
 where l.id = $1::uuid and l.queue = $2::text
 order by t.n
