-- What the functions must know of the configuration; written by `postdate migrate` and by each gateway that starts.
create table postdate.settings (
    one            boolean primary key default true check (one),
    prefix         text not null default 'postdate', -- with which the names of what gateways declare begin (core/base/names.h)
    exchange       text not null default 'postdate.delivery',
    allow          text[] not null default '{*}',
    allow_like     text[] not null default '{%}',   -- the same as patterns of LIKE
    max_delay_ms   bigint not null default 63072000000,
    max_body       bigint not null default 8388608,
    max_properties integer not null default 122880,
    key_memory_ms  bigint not null default 3600000,
    wake_ms        bigint not null default 1500,    -- what is due sooner than this wakes the gateways
    broker_holds   text not null default 'plain' check (broker_holds in ('nothing', 'plain', 'all')),
    cell           smallint check (cell between 0 and 255), -- byte 7 of each id (id_make); once set it stays
    cell_exchange  text,                            -- by which the intake exchange was last bound (amqp/topology/topology.h) …
    cell_weight    smallint,                        -- … and with which weight; null: nobody knows
    recorded_at    timestamptz not null default now()
);
insert into postdate.settings default values;
