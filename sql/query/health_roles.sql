-- What `postdate migrate` wants for SQL users: roles that do not exist, and roles that may not do what they are for; comma-separated.
with wanted (role, is_there) as (
    select r, exists (select from pg_roles where rolname = r)
      from unnest('{postdate_producer,postdate_reader}'::text[]) r
), rights (role, may) as (
    select role, case when is_there then
               has_schema_privilege(role, 'postdate', 'usage')
               and case role when 'postdate_reader' then has_table_privilege(role, 'postdate.messages', 'select')
                    and has_function_privilege(role, 'postdate.message(uuid)', 'execute')
                   else (select bool_and(has_function_privilege(role, p.oid, 'execute')) from pg_proc p
                          where p.pronamespace = 'postdate'::regnamespace
                            and p.proname in ('schedule', 'schedule_many', 'cancel', 'cancel_key', 'reschedule', 'retry')) end end
      from wanted
)
select coalesce((select string_agg(role, ', ' order by role) from wanted where not is_there), ''),
       coalesce((select string_agg(role, ', ' order by role) from rights where not may), '')
