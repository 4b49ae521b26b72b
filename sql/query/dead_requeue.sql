-- $1 ids, $2 queues: they go back, the first at $3 µs since 1970, each further one $4 µs later.
select count(*) filter (where postdate.dead_requeue(t.id, t.queue,
           timestamptz '1970-01-01 00:00:00+00' + ($3::int8 + (t.n - 1) * $4::int8) * interval '1 us'))
  from unnest($1::uuid[], $2::text[]) with ordinality as t (id, queue, n)
