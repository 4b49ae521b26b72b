-- In the order of their hashes, so that they can be searched.
select id, name, created_at, last_used, revoked_at, role, hash, exchanges from postdate.token
 where $1::boolean or revoked_at is null
 order by hash
