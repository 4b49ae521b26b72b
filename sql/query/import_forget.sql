-- All that are awake ($3 is null); else as import_drop.
delete from postdate.import i using postdate.import_run r
 where $3::uuid[] is null and i.message is not null and i.node = r.node and r.node = $1::text and r.run = $2::text
