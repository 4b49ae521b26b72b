-- How many days from today on have a partition, without a gap; how large the database is; how many dead letters are kept, up to
-- 100,000.
select coalesce(sum(g.ends - greatest(g.begins, current_date)) filter (where not g.behind_a_gap), 0)::int8, pg_database_size(current_database()),
       (select count(*) from (select from postdate.lineage where died_at is not null limit 100000) d)
  from (select s.begins, s.ends, bool_or(s.gap) over (order by s.begins) as behind_a_gap
          from (select p.begins, p.ends, p.begins > lag(p.ends, 1, current_date) over (order by p.begins) as gap
                  from (select to_date(substr(c.relname::text, 9), 'YYYYMMDD') as begins,
                               (to_date(substr(c.relname::text, 9), 'YYYYMMDD')
                                + case when length(c.relname::text) = 14 then interval '1 month' else interval '1 day' end)::date as ends
                          from pg_inherits i join pg_class c on c.oid = i.inhrelid
                         where not i.inhdetachpending and c.relnamespace = 'postdate'::regnamespace and c.relkind = 'r'
                           and c.relname ~ '^message_[0-9]{6}([0-9]{2})?$') p
                 where p.ends > current_date) s) g
