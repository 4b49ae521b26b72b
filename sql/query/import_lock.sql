-- Those that are still asleep: whoever locks them wakes them.
select i.id from postdate.import i where i.id = any ($1::uuid[]) and i.message is null for update
