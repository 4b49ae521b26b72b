-- The schema of Postdate, version 1. Runs inside one transaction with search_path = pg_catalog; the schema `postdate`
-- and the table postdate.meta exist already (sql/admin/migrate.c makes them, because they tell which steps are due).

-- The order of the labels is the order of a message's life; sql/ relies on the names only.
create type postdate.message_state as enum
    ('scheduled', 'claimed', 'handed', 'delivered', 'cancelled', 'superseded', 'failed');

-- One row per message, partitioned by the UTC day of its due time. The id's first 48 bits are `due` in milliseconds,
-- so an id alone leads to one partition. `due` never changes; a retry moves `next_at`, which is what claims go by and is
-- never before `due`.
--
-- A row is WAITING while nobody owns it and it is not settled: that is the predicate of the index below, so every
-- way of waiting (scheduled, handed to the broker and without a receipt, in doubt after a lost connection) is
-- found by the same claim. The primary key begins with the id, which sorts like `due`: so batches are found by `id = any (…)`, one index
-- scan whatever the statistics say; a join with a list of (due, id) was planned backwards on fresh partitions. Columns are ordered by alignment, to lose no padding.
create table postdate.message (
    due         timestamptz not null,
    next_at     timestamptz not null,
    created_at  timestamptz not null default now(),
    settled_at  timestamptz,
    id          uuid not null,
    owner       integer,
    attempts    integer not null default 0,
    state       postdate.message_state not null default 'scheduled',
    hold        "char" not null,            -- 'g' the gateway waits, 'b' the broker may
    exchange    text not null,
    routing_key text not null,
    key         text,
    error       text,
    properties  bytea not null,             -- AMQP basic properties as on the wire: flags, then values
    body        bytea not null,
    primary key (id)
) partition by range (id);

create index message_waiting on postdate.message (next_at) where owner is null and settled_at is null;
-- What may be handed to the broker, and what it holds now. A gateway that holds everything itself stores hold = 'g' only, and the first stays empty.
create index message_handover on postdate.message (next_at)
    where owner is null and settled_at is null and state = 'scheduled' and hold = 'b';
create index message_handed on postdate.message (due) where state = 'handed' and settled_at is null;
create index message_owned on postdate.message (owner) where owner is not null;

-- A user's own name for a message, unique per delivery exchange. Whether a key is still taken is read from the message
-- it names (live, or delivered within key_memory), so settling a message does not touch this table.
create table postdate.key (
    exchange text not null,
    key      text not null,
    due      timestamptz not null,
    id       uuid not null,
    primary key (exchange, key)
);
create index key_due on postdate.key (due);

-- Running gateways. A row's session lock (advisory, class 1886352244 = 'post', object = id) tells that it lives.
create table postdate.instance (
    id           integer generated always as identity primary key,
    name         text not null,
    backend_pid  integer not null,
    started_at   timestamptz not null default now(),
    heartbeat_at timestamptz not null default now()
);

-- What the intake stored lately, so that a redelivery after a crash between commit and acknowledgement is recognised by its
-- message-id. One row per batch. A consumer acknowledges a batch before it stores the next, so only its last batches can come
-- back: older ones are removed, and a message that was published again on purpose is not mistaken for a redelivery.
create table postdate.intake_batch (
    id          bigint generated always as identity primary key,
    consumer    bigint not null,
    stored_at   timestamptz not null default now(),
    message_ids text[] not null,
    ids         uuid[] not null
);
