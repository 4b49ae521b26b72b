-- As import_drop: of the run that is the current one.
delete from postdate.import i using postdate.import_run r
 where i.id = any ($1::uuid[]) and i.message is not null and i.node = r.node and r.node = $2::text and r.run = $3::text
