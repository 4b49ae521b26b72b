-- Findings: how many locks a query takes that reads every partition (each, its indexes, and the tables of months), and how many there are for all
-- transactions together. Four such queries are to fit; as many again fit beside each other, for they share locks.
with recursive part as (
    select i.inhrelid as oid from pg_inherits i where i.inhparent = 'postdate.message'::regclass
    union all
    select i.inhrelid from part join pg_inherits i on i.inhparent = part.oid),
l as (
    select (select count(*) from part) + (select count(*) from part join pg_index x on x.indrelid = part.oid) as wanted,
           current_setting('max_locks_per_transaction')::int8 as each, current_setting('max_connections')::int8 + current_setting('max_prepared_transactions')::int8 as times)
select 'ok', 'database.locks', format('%s, of which a query of all days takes %s', each * times, wanted), '' from l where each * times >= 4 * wanted
union all
select 'warn', 'database.locks', format('there are %s, and a query of postdate.messages takes %s of them: few can run at the same time', each * times, wanted),
       format('alter system set max_locks_per_transaction = %s, and restart the server; or ask by id; or lower delivery.max_delay', (8 * wanted / times + 63) / 64 * 64)
  from l where each * times < 4 * wanted
