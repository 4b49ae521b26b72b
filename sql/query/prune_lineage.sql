-- Dead letters that were kept long enough, and counts of what was not refused again.
delete from postdate.lineage
 where (id, queue) in (select id, queue from postdate.lineage where expires_at < now() order by expires_at limit 1000 for update skip locked)
