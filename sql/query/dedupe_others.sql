-- Are other sessions of intake storing something since before $1, the time of the first look? null: this is the first look, and the time is the answer.
select coalesce($1::timestamptz, clock_timestamp()),
       exists (select from pg_stat_activity
                where datname = current_database() and application_name = 'postdate intake' and pid <> pg_backend_pid()
                  and xact_start <= coalesce($1::timestamptz, clock_timestamp()))
