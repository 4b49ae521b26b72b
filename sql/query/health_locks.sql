-- How many locks a query takes that reads every partition (each, its indexes, and the tables of months), and how many there are for all
-- transactions together.
with recursive part as (
    select i.inhrelid as oid from pg_inherits i where i.inhparent = 'postdate.message'::regclass
    union all
    select i.inhrelid from part join pg_inherits i on i.inhparent = part.oid)
select (select count(*) from part) + (select count(*) from part join pg_index x on x.indrelid = part.oid),
       current_setting('max_locks_per_transaction')::int8,
       current_setting('max_connections')::int8 + current_setting('max_prepared_transactions')::int8
