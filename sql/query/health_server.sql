-- What pg_open has set for its own session is left out by asking for the reset value: that of the server, database or role.
select current_setting('server_version_num')::int4, split_part(current_setting('server_version'), ' ', 1), session_user::text,
       pg_is_in_recovery(), current_setting('default_transaction_read_only')::bool,
       (select reset_val from pg_settings where name = 'synchronous_commit'),
       current_setting('fsync')::bool, current_setting('full_page_writes')::bool,
       has_database_privilege(current_database(), 'create'), to_regnamespace('postdate') is not null
