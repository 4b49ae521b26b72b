-- Findings: from today on, whether each day has a partition until the one on which messages may be due at most ($1: in ms).
with s as (
    select coalesce(sum(p.ends - greatest(p.begins, current_date)), 0)::int8 as days, to_char(coalesce(max(p.ends), current_date), 'YYYY-MM-DD') as until,
           coalesce(max(p.ends) - current_date, 0)::int8 as span
      from postdate.partition p where p.attached and not p.is_month_table and p.ends > current_date)
select case when gap or (short and span < 2) then 'fail' when short then 'warn' else 'ok' end, 'database.partitions',
       case when gap then format('%s of the days up to %s have none: messages due then cannot be stored', span - days, until)
            when short then format('they end on %s: messages due later cannot be stored, though delivery.max_delay allows them', until)
            else format('%s days, up to %s', days, until) end,
       case when gap or short then 'postdate migrate (a running gateway makes them, too: if one runs, see its log)' else '' end
  from s, lateral (select days <> span as gap, until::timestamptz < clock_timestamp() + $1::int8 * interval '1 ms' as short) f
