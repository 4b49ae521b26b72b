-- Version 22: where the identity of a schema (010_identity.sql) was made. A dump has it, too; a server and a database of their own have not.
alter table postdate.meta add column system_identifier bigint, add column database_oid bigint;
update postdate.meta set system_identifier = (select c.system_identifier from pg_control_system() c),
                         database_oid = (select d.oid::bigint from pg_database d where d.datname = current_database());
