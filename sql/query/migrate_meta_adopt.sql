-- A copy becomes a database of its own.
update postdate.meta
   set identity = gen_random_uuid(), system_identifier = c.system_identifier, database_oid = d.oid::bigint
  from pg_control_system() c, pg_database d
 where d.datname = current_database()
returning identity::text
