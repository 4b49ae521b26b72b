select id from postdate.key where exchange = $1::text and key = $2::text and ($3::text[] is null or exchange = any ($3::text[]))
