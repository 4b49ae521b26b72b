-- What was to go back to a queue and cannot, mostly because the queue is gone, or because its deadline has passed, becomes a dead letter. Returns are due within the policy's longest wait, and fail soon after: days of
-- longer ago are not looked at.
with gone as materialized (
    select m.id, m.due, m.body, m.properties, m.error, l.id as lineage, l.queue, coalesce((postdate.retry_policy_of(l.queue)).keep_dead, interval '30 days') as keep,
           case when m.state = 'expired' or m.deadline < m.settled_at then 'deadline' else 'return_failed' end as reason
      from postdate.message m
      join postdate.lineage l on l.message = m.id
     where m.state in ('failed', 'expired') and m.settled_at > now() - interval '1 day' and m.exchange = 'postdate.return'
       and m.due > now() - interval '2 days' and m.due <= now() and l.died_at is null
     limit 500
       for update of m, l skip locked),
dead as (
    update postdate.lineage l
       set died_at = clock_timestamp(), message = null, reason = g.reason, error = g.error, expires_at = clock_timestamp() + g.keep, changed_at = clock_timestamp(),
           properties = postdate.return_anew(g.properties), body = g.body,
           failed_at = (l.failed_at || array[clock_timestamp()])[greatest(1, cardinality(l.failed_at) - 98):],
           reasons = (l.reasons || array[g.reason])[greatest(1, cardinality(l.reasons) - 98):]
      from gone g
     where l.id = g.lineage and l.queue = g.queue)
update postdate.message m
   set state = 'superseded', body = '', properties = '', properties_json = null
  from gone g
 where m.id = g.id and m.due = g.due
