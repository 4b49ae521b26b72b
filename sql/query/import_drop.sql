-- Of the run that is the current one: what a later one stores is not seen by whoever sees that it is.
delete from postdate.import i using postdate.import_run r
 where i.id = any ($1::uuid[]) and i.message is null and i.node = r.node and r.node = $2::text and r.run = $3::text
