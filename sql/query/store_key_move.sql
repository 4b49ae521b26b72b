update postdate.key set due = $3::timestamptz, id = $4::uuid where exchange = $1::text and key = $2::text
