-- Nothing is inserted when there are $4 tokens already.
insert into postdate.token (name, hash, exchanges, role)
select $1::text, $2::bytea, $3::text[], $5::text
 where (select count(*) from postdate.token where revoked_at is null) < $4::bigint
