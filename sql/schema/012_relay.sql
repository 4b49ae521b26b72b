-- Version 12: what each gateway has taken from the exit queue, by which the others know what the broker has lost.
alter table postdate.instance
    add column relay_at timestamptz,
    add column relay_low timestamptz,
    add column relay_ping timestamptz,
    add column relay_consumers integer not null default 0;
