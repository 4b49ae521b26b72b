-- Version 10: by what a vhost remembers whose it is (amqp/topology/owner.h). A dump keeps it, so a database that moves is still the same one.
alter table postdate.meta add column identity uuid not null default gen_random_uuid();
