insert into postdate.instance (name, backend_pid, transport, running_since)
values ($1::text, pg_backend_pid(), $2::text, clock_timestamp() - $3::bigint * interval '1 ms')
returning id
