-- What a release after the first might do: for a test of `postdate migrate` alone (tests/live/test_sql_migrate.py).
alter table postdate.message add column next_step integer;
