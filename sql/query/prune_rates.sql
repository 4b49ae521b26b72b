-- A day later nobody can be putting a message there any more.
delete from postdate.rate r
 where r.removed and r.changed_at < now() - interval '1 day'
   and not exists (select from postdate.message m where m.rate = r.id and m.settled_at is null)
