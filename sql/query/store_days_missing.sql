-- Days up to the last partition without one, because it was dropped. From when to when, ascending.
select d.begins at time zone 'UTC', d.ends at time zone 'UTC'
  from (select coalesce(lag(p.ends::timestamp) over (order by p.begins), timestamp '1970-01-01') as begins, p.begins::timestamp as ends
          from postdate.partition p where p.attached and not p.is_month_table) d
 where d.begins < d.ends
 order by d.begins
