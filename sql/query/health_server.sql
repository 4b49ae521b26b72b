select split_part(current_setting('server_version'), ' ', 1), session_user::text,
       has_database_privilege(current_database(), 'create'), to_regnamespace('postdate') is not null
