-- What a release after the first might do (tests/live/test_upgrade.py).
alter table postdate.message add column next_step integer;
create index message_next_step on only postdate.message (next_step);
