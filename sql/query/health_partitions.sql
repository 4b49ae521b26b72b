-- From today on: how many days have a partition, the end of the last one, and how many days there are until then.
select coalesce(sum(s.ends - greatest(s.begins, current_date)), 0)::int8, coalesce(max(s.ends), current_date)::timestamptz,
       coalesce(max(s.ends) - current_date, 0)::int8
  from (select to_date(substr(c.relname::text, 9), 'YYYYMMDD') as begins,
               (to_date(substr(c.relname::text, 9), 'YYYYMMDD') + case when length(c.relname::text) = 14 then interval '1 month' else interval '1 day' end)::date as ends
          from pg_inherits i join pg_class c on c.oid = i.inhrelid
         where not i.inhdetachpending and c.relnamespace = 'postdate'::regnamespace and c.relkind = 'r'
           and c.relname ~ '^message_[0-9]{6}([0-9]{2})?$') s
 where s.ends > current_date
