-- Those that are not revoked, in the order of their hashes, so that they can be searched. C relies on the length.
select id, name, role <> 'operate', hash, exchanges from postdate.token where revoked_at is null and octet_length(hash) = 32 order by hash
