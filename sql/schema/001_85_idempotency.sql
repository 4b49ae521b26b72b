-- What the HTTP interface keeps.

-- Answers to requests with an Idempotency-Key, kept for a day. The row is inserted in the transaction that stores the
-- messages, so both are there or neither. status null: a request of many transactions is being worked on, or was when its gateway died.
create table postdate.idempotency (
    principal    text not null,         -- whose key it is: '' without tokens
    key          text not null,
    created_at   timestamptz not null default now(),
    body_hash    bytea not null,
    status       integer,
    holder       integer,               -- the session at work in many transactions (pg_backend_pid); null: nobody is
    holder_since timestamptz,           -- when that session began, or, where that is hidden, when it took this
    answer       bytea,
    primary key (principal, key)
);
create index idempotency_created_at on postdate.idempotency (created_at);

-- Signs page tokens, for all gateways of this schema.
create table postdate.secret (
    one   boolean primary key default true check (one),
    bytes bytea not null check (octet_length(bytes) = 16)
);
insert into postdate.secret (bytes) values (uuid_send(gen_random_uuid()));
