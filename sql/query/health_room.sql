-- How many days from today on have a partition, without a gap; how large the database is; how many dead letters are kept, up to
-- 100,000.
select coalesce(sum(g.ends - greatest(g.begins, current_date)) filter (where not g.behind_a_gap), 0)::int8, pg_database_size(current_database()),
       (select count(*) from (select from postdate.lineage where died_at is not null limit 100000) d)
  from (select s.begins, s.ends, bool_or(s.gap) over (order by s.begins) as behind_a_gap
          from (select p.begins, p.ends, p.begins > lag(p.ends, 1, current_date) over (order by p.begins) as gap
                  from postdate.partition p where p.attached and not p.is_month_table and p.ends > current_date) s) g
