-- How punctual deliveries were, for the objective of [slo]. Each settler adds to a row of its own, once a second, so
-- that no two wait for each other; a janitor adds up what is older than some hours.
create table postdate.slo_count (
    at          timestamptz not null,        -- when the minute, or the hour, began
    grain       integer not null,            -- seconds: 60, 3600
    writer      integer not null,            -- pid of the settler's session; 0: added up
    delivered   bigint not null,
    late        bigint not null,             -- of these: more than slo.late after their due time
    again       bigint not null,             -- of these: after a retry, or a recovery
    again_late  bigint not null,             -- of those: more than slo.late after their due time …
    again_later bigint not null,             -- … and after the time of the last attempt
    peak        bigint not null default 0,   -- deliveries in the busiest second
    primary key (at, grain, writer)
) with (fillfactor = 50);
