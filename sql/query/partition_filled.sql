-- First instants of the partitions that have any row, in order, from the day of $1 on, at most $2. By the index on names, and no table
-- is looked at beyond the last one wanted: asking all 735 that two years make took 3 ms.
select to_timestamp(right(c.relname, 8), 'YYYYMMDD')
  from pg_class c
 where c.relname >= ('message_' || to_char($1::timestamptz, 'YYYYMMDD'))::name and c.relname < 'message_a' and c.relnamespace = 'postdate'::regnamespace and c.relkind = 'r'
   and exists (select from pg_inherits i where i.inhrelid = c.oid and i.inhparent = 'postdate.message'::regclass and not i.inhdetachpending)
   and pg_relation_size(c.oid) > 0
 order by c.relname
 limit $2::int
