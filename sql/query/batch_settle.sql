-- $1 batches, $2 how far each is settled, $3 whether all of it is, $4 their instance; $5, $6 of which batch what is pending before that, $7 when they were claimed. No row of a message is
-- touched, so nobody's lock is in the way. Synchronous: what is said to be delivered up to a row must not be forgotten, for rows before it may have been settled by
-- themselves meanwhile.
update postdate.batch b
   set upto = t.upto, pending = coalesce(t.pending, '{}'), done = t.done = 1, settled_at = clock_timestamp()
  from (select p.id, p.upto, p.done, p.claimed_at, o.pending
          from unnest($1::bigint[], $2::uuid[], $3::int[], $7::timestamptz[]) as p (id, upto, done, claimed_at)
          left join (select x.batch, array_agg(x.id order by x.id) as pending from unnest($5::bigint[], $6::uuid[]) as x (batch, id) group by x.batch) o
            on o.batch = p.id) t
 where b.id = t.id and b.claimed_at = t.claimed_at and b.owner = $4::int and not b.done
   and (select set_config('synchronous_commit', 'on', true)) = 'on'
