-- Who keeps the queue of NOTIFY from being emptied: $1, if PostgreSQL has named it and it is still there, else the oldest open transaction
-- of an application. Empty: nothing can be seen, without pg_read_all_stats perhaps.
select coalesce((
    select format('pid %s of %s (%s%s)%s%s', a.pid, a.usename, a.application_name, ', database ' || a.datname, ', ' || a.state,
                  to_char(a.xact_start at time zone 'UTC', '", its transaction began at "YYYY-MM-DD HH24:MI:SS"Z"'))
      from pg_stat_activity a
     where a.pid <> pg_backend_pid()
       and (a.pid = $1::int or a.backend_type = 'client backend' and a.xact_start < clock_timestamp() - interval '2 s' and a.application_name not like 'postdate %')
     order by a.pid = $1::int desc, a.xact_start nulls last limit 1), '')
