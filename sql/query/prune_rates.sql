-- A day later nobody can be putting a message there any more. No day is touched (somebody may have one locked) where there is nothing to forget.
delete from postdate.rate r
 where r.removed and r.changed_at < now() - interval '1 day' and postdate.rate_waiting(r.id, 1) = 0
