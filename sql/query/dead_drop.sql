-- $1 ids, $2 queues
select count(*) filter (where postdate.dead_drop(t.id, t.queue)) from unnest($1::uuid[], $2::text[]) as t (id, queue)
