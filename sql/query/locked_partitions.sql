-- Partitions, and tables of a month, that a session has locked, or waits to lock, against reading or writing rows: themselves or one of their indexes. From when to
-- when, whether others may still read, and by whom. Null: the whole table. Reads no partition, so it waits for no lock.
select s.begins, s.begins + case when length(s.digits) = 6 then interval '1 month' else interval '1 day' end, l.mode <> 'AccessExclusiveLock',
       coalesce((select format('pid %s of %s%s', a.pid, a.usename, case when a.application_name <> '' then ' (' || a.application_name || ')' else '' end)
                   from pg_stat_activity a where a.pid = l.pid), 'a prepared transaction')
  from pg_locks l
  left join pg_index i on i.indexrelid = l.relation
  join pg_class t on t.oid = coalesce(i.indrelid, l.relation),
       lateral (select d.digits, to_timestamp(d.digits, 'YYYYMMDD') as begins from (select substring(t.relname::text from '[0-9]+$') as digits) d) s
 where l.locktype = 'relation' and l.database = (select d.oid from pg_database d where d.datname = current_database())
   and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
   and l.pid is distinct from pg_backend_pid()
   and t.relnamespace = 'postdate'::regnamespace and t.relkind in ('r', 'p')
   and (t.relname ~ '^message_(month_[0-9]{6}|[0-9]{6}([0-9]{2})?)$' or t.relname = 'message')
 order by s.begins nulls first, 2 desc
