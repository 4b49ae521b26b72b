-- Now, and the first instant of the oldest partition, as in locked_partition_oldest.
select clock_timestamp(),
       (select to_timestamp(substr(c.relname::text, 9), 'YYYYMMDD') from pg_class c
         where c.relname >= 'message_0' and c.relname < 'message_a' and c.relnamespace = 'postdate'::regnamespace and c.relkind = 'r'
           and exists (select from pg_inherits i where i.inhrelid = c.oid and not i.inhdetachpending)
         order by c.relname limit 1)
