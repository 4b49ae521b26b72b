-- Partitions that somebody has locked, or waits to lock, against reading or writing rows: themselves or an index of theirs. A day, whether others
-- may still read it, and by whom. Null: the whole table. Reads no partition, so it waits for nobody.
select case when t.relname <> 'message' then to_timestamp(right(t.relname, 8), 'YYYYMMDD') end, l.mode <> 'AccessExclusiveLock',
       coalesce((select format('pid %s of %s%s', a.pid, a.usename, case when a.application_name <> '' then ' (' || a.application_name || ')' else '' end)
                   from pg_stat_activity a where a.pid = l.pid), 'a prepared transaction')
  from pg_locks l
  left join pg_index i on i.indexrelid = l.relation
  join pg_class t on t.oid = coalesce(i.indrelid, l.relation)
 where l.locktype = 'relation' and l.database = (select d.oid from pg_database d where d.datname = current_database())
   and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
   and l.pid is distinct from pg_backend_pid()
   and t.relnamespace = 'postdate'::regnamespace and t.relkind in ('r', 'p') and (t.relname ~ '^message_[0-9]{8}$' or t.relname = 'message')
 order by t.relname
