insert into postdate.instance (name, backend_pid, transport) values ($1::text, pg_backend_pid(), $2::text)
returning id
