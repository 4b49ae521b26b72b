select i.id, i.due, i.run = any (string_to_array($3::text, ',')) from postdate.import i where i.node = $1::text and i.message is null limit $2::int
