-- How many days from today on have a partition, without a gap; how large the database is; how many dead letters are kept, up to
-- 100,000.
select count(*) filter (where n = day - current_date)::int8, pg_database_size(current_database()),
       (select count(*) from (select from postdate.lineage where died_at is not null limit 100000) d)
  from (select day, row_number() over (order by day) - 1 as n
          from (select to_date(right(c.relname, 8), 'YYYYMMDD') as day
                  from pg_inherits i join pg_class c on c.oid = i.inhrelid
                 where i.inhparent = 'postdate.message'::regclass and not i.inhdetachpending
                   and c.relname ~ '^message_[0-9]{8}$') p
         where day >= current_date) s
