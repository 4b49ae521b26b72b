-- First and last instants of the partitions that have any row, in order, of those for due times from $4 until $5; $1 and $2 are bounds of their names; at most $3.
-- Steps along the index on names (recursion keeps the order, and stops with the last one wanted). The size of a locked partition could only be read after the lock:
-- it is treated as filled.
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
         order by c.relname limit 1) next),
span as (
    select t.oid, b.begins, b.begins + case when length(t.relname::text) = 14 then interval '1 month' else interval '1 day' end as ends
      from table_ t, lateral (select to_timestamp(substr(t.relname::text, 9), 'YYYYMMDD') as begins) b)
select s.begins, s.ends
  from span s
 where s.ends > $4::timestamptz and s.begins < $5::timestamptz
   and (select not i.inhdetachpending from pg_inherits i where i.inhrelid = s.oid)
   and case when s.oid in (select relation from locked) then true else pg_relation_size(s.oid) > 0 end
 limit $3::int
