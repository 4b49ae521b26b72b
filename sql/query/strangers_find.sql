-- What is in the schema and does not belong to its owner: kind, name, whose it is, and whether this login may give it away; the owner.
select o.kind, o.name, quote_ident(pg_get_userbyid(o.owner)), pg_has_role(session_user, o.owner, 'usage'), quote_ident(pg_get_userbyid(n.nspowner))
  from pg_namespace n, lateral (
        select case c.relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end as kind, c.oid::regclass::text as name, c.relowner as owner
          from pg_class c
         where c.relnamespace = n.oid and c.relkind in ('r', 'p', 'v', 'S')
           and not (c.relkind = 'S' and exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype in ('a', 'i')))
        union all
        select 'routine', p.oid::regprocedure::text, p.proowner from pg_proc p where p.pronamespace = n.oid
        union all
        select 'type', t.oid::regtype::text, t.typowner from pg_type t
         where t.typnamespace = n.oid and (t.typtype in ('e', 'd') or t.typtype = 'c' and (select c.relkind = 'c' from pg_class c where c.oid = t.typrelid))) o
 where n.nspname = 'postdate' and o.owner <> n.nspowner
 order by o.kind, o.name
 limit 10000
