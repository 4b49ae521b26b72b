-- $1 ids; $2, $3 their bounds (prune partitions); $4 instance; null: rows in doubt without an owner. `is not distinct from`, because `=` could be answered by the
-- index of what is owned: statistics that were gathered while nothing was say that it has nothing, and each batch read all that this instance ever owned. Rows in
-- doubt without an owner are delivered, too, if their owner was taken over meanwhile, or had handed them over. $5: the relay's, with a synchronous commit (else a
-- full disk swallows seconds of them), also what the broker held, and what another gateway has claimed: that has died after it delivered it, and a proof came.
update postdate.message
   set state = 'delivered', rate = null, next_at = case when rate is not null then due else coalesce(next_at, due) end, settled_at = clock_timestamp(), owner = null, error = null, attempts = attempts + 1
 where id = any ($1::uuid[]) and id >= $2::uuid and id < $3::uuid and (owner is not distinct from $4::int and owner is not null
        or settled_at is null and ((owner is null or $5::bool) and state = 'claimed' or $5::bool and state = 'handed')
        or $5::bool and next_at is null and exists (select from (select x.owner, x.from_id from (select b.owner, b.from_id, b.done from postdate.batch b where b.to_id >= message.id order by b.to_id limit 1) x where not x.done) b where b.from_id < message.id))
   and (not $5::bool or (select set_config('synchronous_commit', 'on', true)) = 'on')
