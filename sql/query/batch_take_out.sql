-- $1 ids; $2, $3 their bounds (prune partitions); $4 instance. Plain rows of its claims become its own by themselves, for they take long.
update postdate.message m
   set owner = $4::int, state = 'claimed', next_at = m.due
 where m.id = any ($1::uuid[]) and m.id >= $2::uuid and m.id < $3::uuid and m.next_at is null
   and exists (select from postdate.batch b where b.owner = $4::int and not b.done and b.from_id < m.id and b.to_id >= m.id)
   and (select set_config('synchronous_commit', 'on', true)) = 'on'
