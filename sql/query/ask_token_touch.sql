-- Several gateways see the same token: one of them writes.
update postdate.token set last_used = now()
 where id = any ($1::bigint[]) and (last_used is null or last_used < now() - interval '50 s')
