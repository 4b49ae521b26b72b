-- Version 13: RabbitMQ delivers by itself (handover.last_hop = broker). The exit queue from which it does, 1 or 2; 0: it never did.
alter table postdate.meta
    add column last_hop_queue smallint not null default 0 check (last_hop_queue between 0 and 2);

-- When the last ping that came back through exit queue 1 and 2 was sent.
alter table postdate.instance
    add column last_hop_ping_1 timestamptz,
    add column last_hop_ping_2 timestamptz;
