select id from postdate.key where exchange = $1::text and key = $2::text for update
