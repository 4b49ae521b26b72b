-- No promise depends on an advisory lock, because every login of the database can take one. Work that must be exclusive locks a row of this table; batches of the
-- intake and those with redeliveries lock the table itself, in modes that exclude each other (sql/pipeline/store.c).
create table postdate.gate (
    name text primary key
);
insert into postdate.gate values ('partitions'), ('hand-over'), ('exit queues'), ('recurring schedules'), ('claims'), ('old claims');
