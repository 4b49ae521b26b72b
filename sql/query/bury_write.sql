-- In a transaction of pg_begin_by_index.
-- The messages $3 with the due times $4, their ids from $1 until $2, become dead letters with the properties $5.
with gone as materialized (
    select m.id, m.due, m.body, m.error, m.deadline, u.properties, l.id as lineage, l.queue,
           coalesce((postdate.retry_policy_of(l.queue)).keep_dead, interval '30 days') as keep,
           case when m.state = 'expired' or m.deadline < m.settled_at then 'deadline' else 'return_failed' end as reason
      from unnest($3::uuid[], $4::timestamptz[], $5::bytea[]) as u (id, due, properties)
      join postdate.message m on m.id = u.id and m.id >= $1::uuid and m.id < $2::uuid
      join postdate.lineage l on l.message = u.id
     where l.died_at is null),
dead as (
    update postdate.lineage l
       set died_at = clock_timestamp(), message = null, reason = g.reason, error = g.error, expires_at = clock_timestamp() + g.keep, changed_at = clock_timestamp(),
           properties = g.properties, body = g.body, deadline = g.deadline,
           failed_at = (l.failed_at || array[clock_timestamp()])[greatest(1, cardinality(l.failed_at) - 98):],
           reasons = (l.reasons || array[g.reason])[greatest(1, cardinality(l.reasons) - 98):]
      from gone g
     where l.id = g.lineage and l.queue = g.queue)
update postdate.message m
   set state = 'superseded', body = '', properties = '', properties_json = null
  from gone g
 where m.id = g.id and m.id >= $1::uuid and m.id < $2::uuid
