-- $1 exchange, $2 key, $3 due, $4 id, $5 on_conflict, $6 key memory in ms. Does a message keep the key from it; which one.
select standing is not null, holder from postdate.key_decide($1::text, $2::text, $3::timestamptz, $4::uuid, $5::text, $6::bigint)
