-- The gateway reads and writes every table, and makes partitions: that needs `create` in the schema and the table itself.
select has_schema_privilege(n.oid, 'usage'), has_schema_privilege(n.oid, 'create'),
       coalesce((select pg_has_role(c.relowner, 'usage') from pg_class c
                  where c.relnamespace = n.oid and c.relname = 'message'), false),
       pg_get_userbyid(n.nspowner)::text,
       coalesce((select string_agg(c.relname::text, ', ' order by c.relname) from pg_class c
                  where c.relnamespace = n.oid and c.relkind in ('r', 'p') and not c.relispartition
                    and not (has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
                         and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete'))), '')
  from pg_namespace n where n.nspname = 'postdate'
