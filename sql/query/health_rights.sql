-- Findings: the gateway reads and writes every table, and makes partitions: that needs `create` in the schema and the table itself.
with s as (
    select has_schema_privilege(n.oid, 'usage') as usage, has_schema_privilege(n.oid, 'create') as makes,
           coalesce((select pg_has_role(c.relowner, 'usage') from pg_class c
                      where c.relnamespace = n.oid and c.relname = 'message'), false) as owns,
           pg_get_userbyid(n.nspowner)::text as owner,
           (select string_agg(c.relname::text, ', ' order by c.relname) from pg_class c
             where c.relnamespace = n.oid and c.relkind in ('r', 'p') and not c.relispartition
               and not (has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
                    and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete'))) as lacking
      from pg_namespace n where n.nspname = 'postdate')
select case when fine then 'ok' else 'fail' end, 'database.rights',
       case when fine then 'tables can be read and written, partitions made'
            when lacking is not null then 'the login may not read and write: ' || left(lacking, 255)
            else format('the login may not make partitions: it %s in the schema postdate',
                        case when owns then 'has no right to create' else 'does not own the tables' end) end,
       case when fine then '' else format('grant "%s" to the login, or use that role in postgres.url', owner) end
  from s, lateral (select usage and makes and owns and lacking is null as fine) f
