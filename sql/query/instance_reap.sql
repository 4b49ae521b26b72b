-- Removes those of the instances $2 whose session lock is free still: they did not come back.
delete from postdate.instance
 where id in (select id from postdate.instance where id = any ($2::int[]) and id <> $1::int and pg_try_advisory_xact_lock(1886352244, id))
returning id
