-- Nothing, where the schema is not for version $4. `postdate migrate` changes meta's row before it reads the instances: so it sees each one that is registered
-- before.
insert into postdate.instance (name, backend_pid, transport, running_since, version, program)
select $1::text, pg_backend_pid(), $2::text, clock_timestamp() - $3::bigint * interval '1 ms', $4::int, left($5::text, 63)
  from (select from postdate.meta where $4::int between oldest_gateway and version for share) fits
returning id
