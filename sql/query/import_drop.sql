-- Those of these ids, $3, that are asleep. $1 node, $2 run: of the one that is the current one, for what a later one stores is not seen by whoever sees that it is.
delete from postdate.import i using postdate.import_run r
 where i.id = any ($3::uuid[]) and i.message is null and i.node = r.node and r.node = $1::text and r.run = $2::text
