delete from postdate.import i where i.id = any ($1::uuid[]) and i.node = $2::text and i.message is not null
