-- One row: which steps were applied, and to what this schema belongs. The server and the database are those where the identity
-- was made: a dump has all three, and is restored into others.
create table if not exists postdate.meta (
    fed_until         timestamptz,      -- how far `postdate feed` let messages be handed over
    system_identifier bigint,
    database_oid      bigint,
    version           integer not null,
    fingerprint       text[],           -- of each version: of the files that made it (tools/embed_sql.sh) …
    made_by           text[],           -- … and the version of the program that had them
    oldest_gateway    integer not null default 0, -- programs use the schema from their own version on, until this is above it
    last_hop_queue    smallint not null default 0 check (last_hop_queue between 0 and 2), -- from which RabbitMQ delivers by itself (handover.last_hop); 0: it never did
    exit_queues       smallint not null default 1 check (exit_queues between 1 and 16), -- the most that gateways have ever asked for: all are read …
    exit_wanted       smallint not null default 1 check (exit_wanted between 1 and exit_queues), -- … and so many the one that started last
    exit_bound        smallint not null default 0 check (exit_bound between 0 and exit_queues), -- exit queues that get released messages; 0: there was never more than one
    one               boolean primary key default true check (one),
    identity          uuid not null default gen_random_uuid(), -- by which a vhost records its owner (amqp/topology/owner.h)
    broker            text,             -- cluster name and vhost that the messages belong to
    vhost             text,
    prefix            text              -- amqp.prefix: messages that RabbitMQ holds are found under its names only
);
insert into postdate.meta (version, system_identifier, database_oid)
select 0, c.system_identifier, d.oid::bigint from pg_control_system() c, pg_database d where d.datname = current_database()
    on conflict do nothing
