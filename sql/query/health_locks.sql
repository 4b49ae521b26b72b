-- How many locks a query takes that reads every partition (each and its indexes), and how many there are for all transactions together.
select (select count(*) from pg_inherits i where i.inhparent = 'postdate.message'::regclass)
     + (select count(*) from pg_inherits i join pg_index x on x.indrelid = i.inhrelid where i.inhparent = 'postdate.message'::regclass),
       current_setting('max_locks_per_transaction')::int8,
       current_setting('max_connections')::int8 + current_setting('max_prepared_transactions')::int8
