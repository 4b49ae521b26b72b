-- Version 22: what a view or a trigger reaches finds nothing in schemas of others. A function is looked up by the types of its arguments: with `public`
-- in the path of who reads the view, somebody else's function there may fit better, and runs with the reader's rights. Last of this version, for
-- `create or replace` forgets what is set here. A function of one expression is not inlined any more then; none of these is in a query's way.
do $$
declare
    f regprocedure;
begin
    for f in
        with recursive body (name, source) as (
            select p.proname, string_agg(p.prosrc, ' ') from pg_proc p where p.pronamespace = 'postdate'::regnamespace group by 1),
        reached (name) as (
            select distinct (regexp_matches(pg_get_viewdef(c.oid), '\mpostdate\.(\w+)\(', 'g'))[1]::name from pg_class c
             where c.relnamespace = 'postdate'::regnamespace and c.relkind = 'v'
            union
            select p.proname from pg_trigger t join pg_proc p on p.oid = t.tgfoid where p.pronamespace = 'postdate'::regnamespace
            union
            select (regexp_matches(b.source, '\mpostdate\.(\w+)\(', 'g'))[1]::name from reached r join body b on b.name = r.name)
        select p.oid::regprocedure from pg_proc p
         where p.pronamespace = 'postdate'::regnamespace and p.proname in (select name from reached)
           and not coalesce(p.proconfig::text like '%search_path=%', false)
    loop
        execute format('alter function %s set search_path = pg_catalog, pg_temp', f);
    end loop;
end $$;

-- Also what this version made: nobody but the owner calls it, but for what is granted by name.
revoke execute on all functions in schema postdate from public;
