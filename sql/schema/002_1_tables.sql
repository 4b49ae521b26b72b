-- Version 2, part 1 of 6: what the operations of SQL users need. All files of a version run in one transaction.

-- Messages from SQL keep headers and properties as JSON, {"headers":…,"properties":…}, and are encoded when they are published;
-- `properties` is empty then, which a gateway of version 1 refuses visibly. Checked when scheduled so that encoding can't fail.
alter table postdate.message add column properties_json jsonb;
do $$
declare
    loose text;
begin
    -- Days whose detach was interrupted must still fit when they are attached again.
    for loose in
        select c.relname from pg_class c
         where c.relnamespace = 'postdate'::regnamespace and c.relkind = 'r' and c.relname ~ '^message_[0-9]{8}$'
           and not exists (select from pg_inherits i where i.inhrelid = c.oid)
    loop
        execute format('alter table postdate.%I add column if not exists properties_json jsonb', loose);
    end loop;
end $$;

create index key_key on postdate.key (key);

-- Old ids of messages that were rescheduled or replaced. All ids of one message lead to its first one, whose row names the
-- latest: a move writes two rows however many there were. Rows live as long as the latest message's row; the janitor removes them.
create table postdate.moved (
    id        uuid primary key,
    first_id  uuid not null,
    latest_id uuid                          -- in the row of the first id only
);
create index moved_first on postdate.moved (first_id);
create index moved_latest on postdate.moved (latest_id) where latest_id is not null;

-- What the functions must know of the configuration; written by `postdate migrate` and by each gateway that starts.
create table postdate.settings (
    one            boolean primary key default true check (one),
    exchange       text not null default 'postdate.delivery',
    allow          text[] not null default '{*}',
    allow_like     text[] not null default '{%}',   -- the same as patterns of LIKE
    max_delay_ms   bigint not null default 63072000000,
    max_body       bigint not null default 8388608,
    max_properties integer not null default 122880,
    key_memory_ms  bigint not null default 3600000,
    wake_ms        bigint not null default 1500,    -- what is due sooner than this wakes the gateways
    broker_holds   text not null default 'plain' check (broker_holds in ('nothing', 'plain', 'all')),
    recorded_at    timestamptz not null default now()
);
insert into postdate.settings default values;

-- A message on its way into the tables.
create type postdate.draft as (
    due             timestamptz,
    id              uuid,
    hold            "char",
    exchange        text,
    routing_key     text,
    key             text,
    on_conflict     text,
    properties      bytea,
    properties_json jsonb,
    body            bytea
);
