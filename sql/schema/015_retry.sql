-- Version 15: what consumers refused. Their queues dead-letter to postdate.retry; it goes back to the very queue after a wait, and is
-- kept as a dead letter when no attempt is left.

-- How often and after which waits, by the name of the queue ('*' matches any run of characters). The longest pattern that matches
-- counts; without one the built-in default (core/message/retry_policy.c), which retry_policy_set() has as its defaults, too.
create table postdate.retry_policy (
    pattern    text primary key check (octet_length(pattern) between 1 and 255),
    attempts   integer not null check (attempts between 1 and 1000),             -- deliveries in all
    first      interval not null check (first between '0' and '365 days'),
    max        interval not null check (max between first and '365 days'),
    factor     double precision not null check (factor between 1 and 100),
    jitter     integer not null check (jitter between 0 and 100),                -- percent
    reasons    text[] not null check (reasons <@ '{rejected,delivery_limit,expired,maxlen}' and array_position(reasons, null) is null),
    keep_dead  interval not null check (keep_dead between '0' and '3650 days'),
    changed_at timestamptz not null default clock_timestamp(),
    changed_by text not null default session_user
);

-- One message in one queue, through all its attempts: it is known by the id that consumers see (x-postdate-id) and the queue. The
-- number of failed deliveries is this table's, so that neither a consumer's headers nor RabbitMQ's x-death decide. What waits is an
-- ordinary row of postdate.message with the exchange postdate.return; a dead letter is here with its content.
create table postdate.lineage (
    id          uuid not null,
    message     uuid,                    -- the row that waits for the next delivery, or waited last; null: dead
    changed_at  timestamptz not null default clock_timestamp(),
    expires_at  timestamptz not null,    -- forgotten then: a dead letter, or the count of one that is not refused again
    died_at     timestamptz,             -- null: not dead
    failed      integer not null,        -- deliveries that were refused since the start or the last requeue
    queue       text not null,
    exchange    text not null,           -- of its first delivery
    routing_key text not null,
    reason      text not null,           -- of the last failure: rejected, delivery_limit, expired, maxlen; return_failed, deadline
    error       text,                    -- why it could not go back
    hash        bytea not null,          -- of the content
    failed_at   timestamptz[] not null,  -- of the last hundred failures …
    reasons     text[] not null,         -- … why
    properties  bytea,                   -- of a dead one: to go back with as a first attempt
    body        bytea,
    primary key (id, queue)
);
create index lineage_dead on postdate.lineage (died_at, id, queue) where died_at is not null;
create index lineage_queue on postdate.lineage (queue, died_at, id) where died_at is not null;
create index lineage_expires on postdate.lineage (expires_at);
create index lineage_message on postdate.lineage (message) where message is not null;

-- The policy of a queue, as core/message/retry_policy.c finds it; null: the built-in default.
create function postdate.retry_policy_of(queue text) returns postdate.retry_policy language sql stable set search_path = pg_catalog, pg_temp as $$
    select p from postdate.retry_policy p
     where retry_policy_of.queue like replace(replace(replace(replace(p.pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')
     order by octet_length(p.pattern) desc, p.pattern collate "C" limit 1
$$;

-- The properties of a return as those of a first attempt: the header is the number's name, type and 32 bits (core/message/dead_letter.c).
create function postdate.return_anew(properties bytea) returns bytea language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    header bytea := decode('12', 'hex') || convert_to('x-postdate-attemptI', 'UTF8');
    at integer := position(header in properties);
begin
    return case when at = 0 then properties
                else overlay(properties placing decode('00000001', 'hex') from at + octet_length(header) for 4) end;
end $$;

create function postdate.retry_policy_set(pattern text, attempts integer default 10, first interval default '1 s', factor double precision default 2,
    max interval default '1 h', jitter integer default 10, reasons text[] default '{rejected,delivery_limit}', keep_dead interval default '30 d')
returns void language sql security definer set search_path = pg_catalog, pg_temp as $$
    insert into postdate.retry_policy (pattern, attempts, first, factor, max, jitter, reasons, keep_dead, changed_by)
    values (retry_policy_set.pattern, retry_policy_set.attempts, retry_policy_set.first, retry_policy_set.factor, retry_policy_set.max,
            retry_policy_set.jitter, retry_policy_set.reasons, retry_policy_set.keep_dead, session_user)
    on conflict on constraint retry_policy_pkey do update
       set attempts = excluded.attempts, first = excluded.first, factor = excluded.factor, max = excluded.max, jitter = excluded.jitter,
           reasons = excluded.reasons, keep_dead = excluded.keep_dead, changed_at = clock_timestamp(), changed_by = excluded.changed_by
$$;
revoke execute on function postdate.retry_policy_set(text, integer, interval, double precision, interval, integer, text[], interval) from public;

create function postdate.retry_policy_remove(pattern text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    delete from postdate.retry_policy p where p.pattern = retry_policy_remove.pattern;
    return found;
end $$;
revoke execute on function postdate.retry_policy_remove(text) from public;

-- Sends a dead letter back to its queue, due at `due`, with its attempts counted anew. False: it is not there, or not dead any more.
create function postdate.dead_requeue(id uuid, queue text, due timestamptz default clock_timestamp()) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    l postdate.lineage;
    at timestamptz := date_trunc('milliseconds', greatest(due, clock_timestamp()));
    row_id uuid := postdate.id_make(at);
begin
    select * into l from postdate.lineage x where x.id = dead_requeue.id and x.queue = dead_requeue.queue and x.died_at is not null for update;
    if not found then return false; end if;
    insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body)
    values (at, at, row_id, 'g', 'postdate.return', l.routing_key, l.properties, l.body);
    update postdate.lineage x
       set message = row_id, died_at = null, failed = 0, error = null, properties = null, body = null, changed_at = clock_timestamp(),
           expires_at = at + interval '30 days'
     where x.id = l.id and x.queue = l.queue;
    notify postdate_wake;
    return true;
end $$;
revoke execute on function postdate.dead_requeue(uuid, text, timestamptz) from public;

create function postdate.dead_drop(id uuid, queue text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    delete from postdate.lineage x where x.id = dead_drop.id and x.queue = dead_drop.queue and x.died_at is not null;
    return found;
end $$;
revoke execute on function postdate.dead_drop(uuid, text) from public;
