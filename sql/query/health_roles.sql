-- Findings: the roles of `postdate migrate` for SQL users: missing ones, and those without their rights.
with wanted (role, is_there) as (
    select r, exists (select from pg_roles where rolname = r)
      from unnest('{postdate_producer,postdate_reader}'::text[]) r
), rights (role, may) as (
    select role, case when is_there then
               has_schema_privilege(role, 'postdate', 'usage')
               and (role <> 'postdate_reader' or has_table_privilege(role, 'postdate.messages', 'select'))
               and (select bool_and(has_function_privilege(role, p.oid, 'execute')) from pg_proc p
                     where p.pronamespace = 'postdate'::regnamespace
                       and case role when 'postdate_reader' then p.proname = 'message'
                               else p.proname in ('schedule', 'schedule_many', 'cancel', 'cancel_key', 'reschedule', 'retry') end) end
      from wanted
), found (missing, weak) as (
    select (select string_agg(role, ', ' order by role) from wanted where not is_there),
           (select string_agg(role, ', ' order by role) from rights where not may)
)
select 'ok', 'database.roles', coalesce('not there: ' || missing || '; wanted only for SQL users other than the owner: docs/sql.md',
                                        'SQL users can be given postdate_producer and postdate_reader'), ''
  from found where missing is not null or weak is null
union all
select 'warn', 'database.roles', 'lacking rights in the schema postdate: ' || weak, 'postdate migrate (it grants them)' from found where weak is not null
