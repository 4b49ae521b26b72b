-- Sessions of roles that are no members of the owner, and have or want advisory locks of the class that gateways of schema version 21 used
-- (0x706f7374, 'post'): how many, and the first of them.
select count(*), coalesce(string_agg(who, ', ' order by pid) filter (where n <= 5), '')
  from (select a.pid, case when a.pid is null then 'a prepared transaction' else format('pid %s of %s', a.pid, pg_get_userbyid(a.usesysid)) end as who,
               row_number() over (order by a.pid) as n
          from (select distinct l.pid from pg_locks l
                 where l.locktype = 'advisory' and l.classid = 1886352244
                   and l.database = (select d.oid from pg_database d where d.datname = current_database())) l
          left join pg_stat_activity a on a.pid = l.pid
         where not coalesce(pg_has_role(a.usesysid, (select n.nspowner from pg_namespace n where n.nspname = 'postdate'), 'member'), false)) f
