-- Gateways, and what they stored lately.

-- Running gateways. What each has taken from the exit queue tells the others what the broker has lost.
create table postdate.instance (
    started_at      timestamptz not null default now(),
    running_since   timestamptz not null,    -- the program; it books anew when its session or its lease was lost
    heartbeat_at    timestamptz not null default now(),
    relay_at        timestamptz,
    relay_low       timestamptz,
    relay_pings     timestamptz[] not null default '{}', -- of each exit queue that it knows of, also those without: when the last ping that came out there was sent …
    last_hop_ping_1 timestamptz,             -- when the last ping that came back through exit queue 1 was sent …
    last_hop_ping_2 timestamptz,             -- … and through exit queue 2
    id              integer generated always as identity primary key,
    backend_pid     integer not null,
    version         integer not null,        -- of the schema, as the program knows it
    relay_consumers integer[] not null default '{}', -- … and how many consumers it has there
    broker_away     boolean not null default false,
    name            text not null,
    transport       text,                    -- how the broker waits for it: timer, native, plugin or ttl
    program         text                     -- the program's version, as --version says it
);

-- A gateway whose lease ran out stops publishing by itself. One whose session is gone does so at once; where its number belongs to somebody
-- else's session by now, the lease alone tells.
create function postdate.instance_lives(i postdate.instance, lease_ms bigint) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select i.heartbeat_at > clock_timestamp() - lease_ms * interval '1 ms' and exists (select from pg_stat_get_activity(i.backend_pid))
$$;

-- Is somebody publishing it? An owner whose lease ran out long ago is nobody: no gateway may be left to say so. 0: it may be claimed just now.
create function postdate.owner_lives(owner integer) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select owner = 0 or exists (select from postdate.instance i where i.id = owner and i.heartbeat_at > clock_timestamp() - interval '30 s')
$$;

-- What the intake stored lately, so that a redelivery after a crash between commit and acknowledgement is recognised by its
-- message-id. One row per batch. A consumer acknowledges a batch before it stores the next, so only its last batches can come
-- back: older ones are removed, and a message that was published again on purpose is not mistaken for a redelivery.
create table postdate.intake_batch (
    id          bigint generated always as identity primary key,
    consumer    bigint not null,
    stored_at   timestamptz not null default now(),
    redelivery  bigint,                      -- the number of a batch in which there was one that RabbitMQ had delivered before
    message_ids text[] not null,
    ids         uuid[] not null
);

-- Counts batches in which there was such a message (sql/pipeline/store.c). redelivery is that number, in notes of nothing else.
create sequence postdate.redelivery;
