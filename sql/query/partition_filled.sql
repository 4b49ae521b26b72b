-- First instants of the partitions that have any row, in order.
select to_timestamp(right(c.relname, 8), 'YYYYMMDD')
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
 where i.inhparent = 'postdate.message'::regclass and not i.inhdetachpending and pg_relation_size(c.oid) > 0
 order by c.relname
