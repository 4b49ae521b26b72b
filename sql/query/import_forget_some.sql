-- Those of these ids, $3, that are awake; else as import_drop.
delete from postdate.import i using postdate.import_run r
 where i.id = any ($3::uuid[]) and i.message is not null and i.node = r.node and r.node = $1::text and r.run = $2::text
