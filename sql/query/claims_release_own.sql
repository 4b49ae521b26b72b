update postdate.message m set owner = null where m.owner = $2::int and m.due <= $1::timestamptz
