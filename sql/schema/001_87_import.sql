-- Messages of a delayed-message plugin on their way here (`postdate import plugin`, docs/internals/import.md).

-- Asleep while `message` is null: a copy of what the plugin may still have, which no gateway sees. Awake: the id of the message that
-- is stored, without the content; such rows are the proof, and go when the import of that node has come to its end.
create table postdate.import (
    id          uuid primary key,       -- made of the plugin's entry, the same whenever it is read
    node        text not null,
    run         text not null,          -- which has read it; the plugin's table knows it, unless it was made anew or restored from a copy
    due         timestamptz not null,
    message     uuid,
    hash        bytea,                  -- SHA-256 of the body, once it is awake
    source      text not null,          -- the plugin's exchange
    exchange    text not null,
    routing_key text not null,
    properties  bytea not null,
    body        bytea not null
);
create index import_asleep on postdate.import (node) where message is null;

-- The run that may change what is asleep: the last one that has begun. An earlier one that lost its session, and its lock with it, finds
-- another name here. Also where a pooler gives sessions to others.
create table postdate.import_run (
    node text primary key,
    run  text not null
);
