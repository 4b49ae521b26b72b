select format('database %s of server %s', d.oid, c.system_identifier)
  from pg_control_system() c, pg_database d where d.datname = current_database()
