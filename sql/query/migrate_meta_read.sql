-- Some columns are newer than the table. Then: is it a copy, where was it made.
select m.version, coalesce(m.broker, ''), coalesce(m.vhost, ''), coalesce(j ->> 'identity', ''),
       coalesce((j ->> 'system_identifier')::bigint <> c.system_identifier or (j ->> 'database_oid')::bigint <> d.oid::bigint, false),
       format('database %s of server %s', j ->> 'database_oid', j ->> 'system_identifier')
  from postdate.meta m, to_jsonb(m) j, pg_control_system() c, pg_database d
 where d.datname = current_database()
