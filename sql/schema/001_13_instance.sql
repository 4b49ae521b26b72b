-- Gateways, and the message-ids that they stored recently.

-- Running gateways. From their progress with the exit queues, all gateways know which messages RabbitMQ has lost.
create table postdate.instance (
    started_at      timestamptz not null default now(),
    running_since   timestamptz not null,    -- the program's start; it registers again when its session or lease was lost
    heartbeat_at    timestamptz not null default now(),
    relay_at        timestamptz,
    relay_low       timestamptz,
    relay_pings     timestamptz[] not null default '{}', -- for each exit queue that it knows, also those without a ping: when the last ping that it consumed there was sent …
    last_hop_ping_1 timestamptz,             -- when the last ping that passed exit queue 1 of RabbitMQ's last hop was sent …
    last_hop_ping_2 timestamptz,             -- … and through exit queue 2
    id              integer generated always as identity primary key,
    backend_pid     integer not null,
    version         integer not null,        -- of the schema, as the program knows it
    relay_consumers integer[] not null default '{}', -- … and how many consumers it has there
    broker_away     boolean not null default false,
    name            text not null,
    transport       text,                    -- its transport: timer, native, plugin or ttl
    program         text                     -- the program's version, as --version says it
);

-- A gateway whose lease has expired stops publishing by itself. One whose session has ended does so at once; if its backend's pid belongs to another session now,
-- only the lease shows it.
create function postdate.instance_lives(i postdate.instance, lease_ms bigint) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select i.heartbeat_at > clock_timestamp() - lease_ms * interval '1 ms' and exists (select from pg_stat_get_activity(i.backend_pid))
$$;

-- May a gateway be publishing it? An owner whose lease expired long ago is ignored, because no gateway may be left to take it over. 0: it may be claimed just now.
create function postdate.owner_lives(owner integer) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select owner = 0 or exists (select from postdate.instance i where i.id = owner and i.heartbeat_at > clock_timestamp() - interval '30 s')
$$;

-- Message-ids that the intake stored recently, by which a redelivery after a crash between commit and acknowledgement is recognised. One row per batch. A consumer
-- acknowledges a batch before it stores the next, so only its last batches can be redelivered: older ones are removed, and a message that a client publishes again
-- on purpose is not taken for a redelivery.
create table postdate.intake_batch (
    id          bigint generated always as identity primary key,
    consumer    bigint not null,
    stored_at   timestamptz not null default now(),
    redelivery  bigint,                      -- the number of a batch with a redelivered message
    message_ids text[] not null,
    ids         uuid[] not null
);

-- Counts batches with a redelivered message (sql/pipeline/store.c); intake_batch.redelivery is that number.
create sequence postdate.redelivery;
