-- The oldest transaction open in this database, and how many sessions of other roles cannot be looked into.
select coalesce((extract(epoch from clock_timestamp() - min(started)) * 1000)::int8, -1),
       coalesce((array_agg(who order by started))[1], ''),
       (select count(*) from pg_stat_activity
         where datname = current_database() and state is null and backend_type is null)
  from (select xact_start as started,
               format('pid %s of %s%s, %s', pid, usename, case when application_name <> '' then ' (' || application_name || ')' else '' end, state) as who
          from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
           and backend_type = 'client backend'
        union all
        select prepared, format('prepared transaction %L of %s', gid, owner) from pg_prepared_xacts
         where database = current_database()) t
