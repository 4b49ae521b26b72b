-- In a transaction of pg_begin_by_index. Returns that failed, mostly because the queue was deleted or the deadline has passed: of the ids from $1 until $2, what
-- ended after $3.
select m.id, m.due, m.properties
  from postdate.message m
  join postdate.lineage l on l.message = m.id
 where m.id >= $1::uuid and m.id < $2::uuid and m.due <= now()
   and m.state in ('failed', 'expired') and m.settled_at > $3::timestamptz and m.exchange = 'postdate.return' and l.died_at is null
 limit 200
   for update of m, l skip locked
