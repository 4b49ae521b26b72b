-- Every table that is or was a partition, or the table of a month: is it attached, is a detach pending, to what; is it the table of a month.
select c.relname::text,
       i.inhrelid is not null and not i.inhdetachpending,
       coalesce(i.inhdetachpending, false),
       coalesce((select p.relname::text from pg_class p where p.oid = i.inhparent), ''),
       c.relkind = 'p'
  from pg_class c
  left join pg_inherits i on i.inhrelid = c.oid
 where c.relnamespace = 'postdate'::regnamespace
   and (c.relkind = 'r' and c.relname ~ '^message_[0-9]{6}([0-9]{2})?$' or c.relkind = 'p' and c.relname ~ '^message_month_[0-9]{6}$')
 order by c.relname
