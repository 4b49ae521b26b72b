update postdate.token set revoked_at = now() where name = $1::text and revoked_at is null
