-- Findings: the oldest transaction open in this database, and how many sessions of other roles cannot be looked into.
with t as (
    select xact_start as started,
           format('pid %s of %s%s, %s', pid, usename, case when application_name <> '' then ' (' || application_name || ')' else '' end, state) as who
      from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
       and backend_type = 'client backend'
    union all
    select prepared, format('prepared transaction %L of %s', gid, owner) from pg_prepared_xacts
     where database = current_database()),
s as (
    select clock_timestamp() - min(started) as age, left((array_agg(who order by started))[1], 255) as who,
           (select format(' (%s sessions of other roles are hidden: grant pg_read_all_stats)', count(*)) from pg_stat_activity
             where datname = current_database() and state is null and backend_type is null having count(*) > 0) as hidden
      from t)
select 'ok', 'database.transactions', 'none open for more than 10 min' || coalesce(hidden, ''), ''
  from s where coalesce(age < interval '10 min', true)
union all
select 'warn', 'database.transactions',
       format('open for %s min: %s: dead rows cannot be removed, claims become slower%s', floor(extract(epoch from age) / 60), who, hidden),
       'let it end; or: select pg_terminate_backend(PID), or rollback prepared ''GID''' from s where age >= interval '10 min'
