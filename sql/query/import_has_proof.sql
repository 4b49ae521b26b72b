select exists (select from postdate.import i where i.node = $1::text and i.message is not null)
