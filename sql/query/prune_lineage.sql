-- Dead letters after their retention, and counts of messages that were not rejected again.
delete from postdate.lineage
 where (id, queue) in (select id, queue from postdate.lineage where expires_at < now() order by expires_at limit 1000 for update skip locked)
