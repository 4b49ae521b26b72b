-- From today on: how many days have a partition, the end of the last one, and how many days there are until then.
select count(*), (coalesce(max(day), current_date - 1) + 1)::timestamptz, (coalesce(max(day), current_date - 1) - current_date + 1)::int8
  from (select to_date(right(c.relname, 8), 'YYYYMMDD') as day
          from pg_inherits i join pg_class c on c.oid = i.inhrelid
         where i.inhparent = 'postdate.message'::regclass and not i.inhdetachpending
           and c.relname ~ '^message_[0-9]{8}$') p
 where day >= current_date
