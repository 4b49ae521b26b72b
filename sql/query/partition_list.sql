-- Every table that is or was a partition: is it attached, is a detach pending.
select c.relname::text,
       i.inhrelid is not null and not i.inhdetachpending,
       coalesce(i.inhdetachpending, false)
  from pg_class c
  left join pg_inherits i on i.inhrelid = c.oid
 where c.relnamespace = 'postdate'::regnamespace and c.relkind = 'r'
   and c.relname ~ '^message_[0-9]{8}$'
 order by c.relname
