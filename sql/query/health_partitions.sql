-- Findings: from today on, whether each day has a partition until the one on which messages may be due at most ($1: in ms).
with s as (
    select coalesce(sum(s.ends - greatest(s.begins, current_date)), 0)::int8 as days, to_char(coalesce(max(s.ends), current_date), 'YYYY-MM-DD') as until,
           coalesce(max(s.ends) - current_date, 0)::int8 as span
      from (select to_date(substr(c.relname::text, 9), 'YYYYMMDD') as begins,
                   (to_date(substr(c.relname::text, 9), 'YYYYMMDD') + case when length(c.relname::text) = 14 then interval '1 month' else interval '1 day' end)::date as ends
              from pg_inherits i join pg_class c on c.oid = i.inhrelid
             where not i.inhdetachpending and c.relnamespace = 'postdate'::regnamespace and c.relkind = 'r'
               and c.relname ~ '^message_[0-9]{6}([0-9]{2})?$') s
     where s.ends > current_date)
select case when gap or (short and span < 2) then 'fail' when short then 'warn' else 'ok' end, 'database.partitions',
       case when gap then format('%s of the days up to %s have none: messages due then cannot be stored', span - days, until)
            when short then format('they end on %s: messages due later cannot be stored, though delivery.max_delay allows them', until)
            else format('%s days, up to %s', days, until) end,
       case when gap or short then 'postdate migrate (a running gateway makes them, too: if one runs, see its log)' else '' end
  from s, lateral (select days <> span as gap, until::timestamptz < clock_timestamp() + $1::int8 * interval '1 ms' as short) f
