delete from postdate.key where exchange = $1::text and key = $2::text and id = $3::uuid
