-- The lock is for gateways of schema version 21 and older that still run: they take those for dead that have none.
insert into postdate.instance (name, backend_pid, transport) values ($1::text, pg_backend_pid(), $2::text)
returning id, pg_try_advisory_lock(1886352244, id)
