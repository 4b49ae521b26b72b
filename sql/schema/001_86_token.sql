-- Tokens: who may use which delivery exchanges where http.tokens is on.

create table postdate.token (
    id         bigint generated always as identity primary key,   -- never used twice: answers to Idempotency-Keys belong to it
    hash       bytea not null unique check (octet_length(hash) = 32),   -- SHA-256 of the token, which is nowhere
    name       text not null check (octet_length(name) between 1 and 64),
    role       text not null default 'operate' check (role in ('read', 'operate')),   -- `read` looks only; `operate` also changes
    exchanges  text[] not null check (array_position(exchanges, null) is null),
    created_at timestamptz not null default now(),
    last_used  timestamptz,             -- to about a minute
    revoked_at timestamptz
);
create unique index token_name on postdate.token (name) where revoked_at is null;

-- Gateways keep the tokens in memory, and read them again when this number is another one.
create table postdate.token_version (
    one     boolean primary key default true check (one),
    version bigint not null default 1
);
insert into postdate.token_version default values;

-- A trigger, so that a change by hand counts, too.
create function postdate.token_changed() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update postdate.token_version set version = version + 1;
    return null;
end $$;

create trigger token_changed after insert or delete or truncate or update of hash, exchanges, role, revoked_at on postdate.token
    for each statement execute function postdate.token_changed();
