-- Version 22: every table has a primary key, so that rows can be deleted beside a publication for all tables.
alter table postdate.forecast_change add column id bigint generated always as identity primary key;
