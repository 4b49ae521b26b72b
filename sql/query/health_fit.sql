-- Findings: is the server writable and durable? 14 is the first with DETACH CONCURRENTLY. What pg_open has set for its own session is left out by asking for the
-- reset value: that of the server, database or role.
with s as (
    select current_setting('server_version_num')::int4 as version, session_user::text as login,
           (select reset_val from pg_settings where name = 'synchronous_commit') as commits,
           case when current_setting('fsync') = 'off' then 'fsync' when current_setting('full_page_writes') = 'off' then 'full_page_writes' end as missing)
select f[1], 'database.server', f[2], f[3]
  from (select case
            when version < 140000 then
                array['fail', format('PostgreSQL %s is too old: 14 or newer is needed', split_part(current_setting('server_version'), ' ', 1)), 'upgrade the server']
            when pg_is_in_recovery() then
                array['fail', 'this server is a standby: it accepts no writes', 'name all hosts in postgres.url and add target_session_attrs=read-write']
            when current_setting('default_transaction_read_only')::bool then
                array['fail', 'default_transaction_read_only is on: nothing can be stored',
                      format('alter role "%s" set default_transaction_read_only = off, or the same for the database', login)]
            else array['ok', format('a primary, version %s', version / 10000), ''] end as f from s) t
union all
select 'ok', 'database.durability', format('synchronous_commit %s, fsync on', commits), '' from s where missing is null and commits <> 'off'
union all
select 'warn', 'database.durability', format('%s is off: a crash of the machine may destroy the database, and every message in it', missing),
       format('alter system set %s = on; select pg_reload_conf()', missing) from s where missing is not null
union all
select 'warn', 'database.durability',
       'synchronous_commit is off for this login: Postdate sets it back to on for itself, but your own transactions may be lost in a crash',
       format('alter role "%s" set synchronous_commit = on (or in postgresql.conf, or for the database)', login) from s where commits = 'off'
