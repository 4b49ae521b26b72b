-- $1 the caller's consumer, $2 for how many ms it has been running. A consumer acknowledges a batch before it stores the next: of each only the
-- batches of its last two seconds of work can still come back. Our own are acknowledged for good after a minute; those
-- of consumers before us have been redelivered, to us or to others, once we have been running for five.
delete from postdate.intake_batch b
 using (select consumer, max(stored_at) as last from postdate.intake_batch group by consumer) c
 where b.consumer = c.consumer
   and (b.stored_at < c.last - interval '2 s'
        or (b.consumer = $1::bigint and b.stored_at < now() - interval '1 min')
        or ($2::bigint > 300000 and b.stored_at < now() - $2::bigint * interval '1 ms'))
