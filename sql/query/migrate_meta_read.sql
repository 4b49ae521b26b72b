-- Then: is it a copy, where was it made.
select m.version, coalesce(m.broker, ''), coalesce(m.vhost, ''), m.identity::text,
       coalesce(m.system_identifier <> c.system_identifier or m.database_oid <> d.oid::bigint, false),
       format('database %s of server %s', m.database_oid, m.system_identifier), m.oldest_gateway, coalesce(m.prefix, '')
  from postdate.meta m, pg_control_system() c, pg_database d
 where d.datname = current_database()
