-- Which queues RabbitMQ spreads messages over: a row for each place where it does. Whoever declares them in RabbitMQ holds the row, so
-- gateways with different settings do it one after the other (amqp/topology/topology_shards.h).
create table postdate.shards (
    place   text primary key,
    queues  smallint not null default 1 check (queues between 1 and 64), -- so many get messages, as the gateway that started last wants
    most    smallint not null default 1 check (most >= queues),          -- so many ever did, and are read
    moving  boolean not null default false,      -- sources are being moved, or somebody died over that
    by      text not null default 'random',      -- by what a message is given to a queue, as that gateway wants
    done    text,                                -- the same, as it is; null: messages never went by a shards exchange
    sources text[] not null default '{}'         -- exchanges that were moved to a shards exchange, or are being moved
);
insert into postdate.shards (place) values ('intake');
