-- $1 batches, $2 how far each is delivered, $3 whether all of it is, $4 their instance. Synchronous: what is said to be delivered up to a row must not be
-- forgotten, for rows before it may have been settled by themselves meanwhile.
update postdate.batch b
   set upto = greatest(b.upto, t.upto), done = t.done = 1, settled_at = clock_timestamp()
  from unnest($1::bigint[], $2::uuid[], $3::int[]) as t (id, upto, done)
 where b.id = t.id and b.owner = $4::int and not b.done
   and (select set_config('synchronous_commit', 'on', true)) = 'on'
