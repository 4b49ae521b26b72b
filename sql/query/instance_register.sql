insert into postdate.instance (name, backend_pid) values ($1::text, pg_backend_pid()) returning id
