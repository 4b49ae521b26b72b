delete from postdate.import i where i.id = any ($1::uuid[]) and i.message is null
