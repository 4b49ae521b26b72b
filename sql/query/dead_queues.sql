-- $1 id, $2 queue (null: any), $3 scope (null: all): the queues that refused it, those where it is dead first.
select queue, died_at is not null
  from postdate.lineage
 where id = $1::uuid and ($2::text is null or queue = $2::text) and ($3::text[] is null or exchange = any ($3::text[]))
 order by died_at is null, queue
 limit 11
