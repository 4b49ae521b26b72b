-- Of each consumer only the batches of its last two seconds of work can still come back. Consumers of the past are forgotten
-- after a day.
delete from postdate.intake_batch b
 using (select consumer, max(stored_at) as last from postdate.intake_batch group by consumer) c
 where b.consumer = c.consumer
   and (b.stored_at < c.last - interval '2 s' or c.last < now() - interval '1 day')
