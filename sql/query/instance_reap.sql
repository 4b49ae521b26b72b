-- Removes those of the instances $2 that are dead still: they did not come back. A heartbeat meanwhile is waited for, and seen.
delete from postdate.instance i where i.id = any ($2::int[]) and i.id <> $1::int and not postdate.instance_lives(i, $3::bigint)
