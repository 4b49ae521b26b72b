-- A day later, no session can still add a message to it. If there is nothing to delete, no day is read, because days may be locked.
delete from postdate.rate r
 where r.removed and r.changed_at < now() - interval '1 day' and postdate.rate_waiting(r.id, 1) = 0
