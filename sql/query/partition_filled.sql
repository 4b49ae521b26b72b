-- First instants of the partitions that have any row, in order, with names from $1 up to, not including, $2; at most $3. Steps along the
-- index on names (recursion keeps the order, and stops with the last one wanted): asking each of the 735 that two years make took 11 ms.
-- Asking for the size of one that somebody has locked would wait for him: that one counts as filled.
with recursive locked as materialized (
    select l.relation from pg_locks l
     where l.locktype = 'relation' and l.mode = 'AccessExclusiveLock'
       and l.database = (select d.oid from pg_database d where d.datname = current_database())),
table_ as (
    (select c.relname, c.oid from pg_class c
      where c.relname >= $1::text::name and c.relname < $2::text::name and c.relnamespace = 'postdate'::regnamespace and c.relkind = 'r'
      order by c.relname limit 1)
    union all
    select next.relname, next.oid from table_, lateral (
        select c.relname, c.oid from pg_class c
         where c.relname > table_.relname and c.relname < $2::text::name and c.relnamespace = 'postdate'::regnamespace and c.relkind = 'r'
         order by c.relname limit 1) next)
select to_timestamp(right(t.relname, 8), 'YYYYMMDD')
  from table_ t
 where (select not i.inhdetachpending from pg_inherits i where i.inhrelid = t.oid and i.inhparent = 'postdate.message'::regclass)
   and case when t.oid in (select relation from locked) then true else pg_relation_size(t.oid) > 0 end
 limit $3::int
