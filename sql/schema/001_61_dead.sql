-- Dead letters, and the attempts before.

-- One message in one queue, through all its attempts: it is known by the id that consumers see (x-postdate-id) and the queue. The
-- number of failed deliveries is this table's, so that neither a consumer's headers nor RabbitMQ's x-death decide. What waits is an
-- ordinary row of postdate.message with the exchange postdate.return; a dead letter is here with its content.
create table postdate.lineage (
    id          uuid not null,
    message     uuid,                    -- the row that waits for the next delivery, or waited last; null: dead
    changed_at  timestamptz not null default clock_timestamp(),
    expires_at  timestamptz not null,    -- forgotten then: a dead letter, or the count of one that is not refused again
    died_at     timestamptz,             -- null: not dead
    deadline    timestamptz,             -- of the message, which a requeue must not outlive
    failed      integer not null,        -- deliveries that were refused since the start or the last requeue
    queue       text not null,
    exchange    text not null,           -- of its first delivery
    routing_key text not null,
    reason      text not null,           -- of the last failure: rejected, delivery_limit, expired, maxlen; return_failed, deadline
    error       text,                    -- why it could not go back
    hash        bytea not null,          -- of the content
    failed_at   timestamptz[] not null,  -- of the last hundred failures …
    reasons     text[] not null,         -- … why
    refusals    uuid[] not null default '{}', -- the last ten that were counted: one that RabbitMQ delivers again is told from another (core/message/dead_letter.h)
    properties  bytea,                   -- of a dead one: to go back with as a first attempt
    body        bytea,
    primary key (id, queue)
);
create index lineage_dead on postdate.lineage (died_at, id, queue) where died_at is not null;
create index lineage_queue on postdate.lineage (queue, died_at, id) where died_at is not null;
create index lineage_expires on postdate.lineage (expires_at);
create index lineage_message on postdate.lineage (message) where message is not null;

-- Sends a dead letter back to its queue, due at `due_at`, with its attempts counted anew. After its deadline it is not delivered, and ends as a dead
-- letter again. False: it is not there, or not dead any more.
create function postdate.dead_requeue(id uuid, queue text, due_at timestamptz default clock_timestamp()) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    l postdate.lineage;
    at timestamptz := date_trunc('milliseconds', greatest(due_at, clock_timestamp()));
    row_id uuid := postdate.id_make(at, (select cell from postdate.settings));
begin
    select * into l from postdate.lineage x where x.id = dead_requeue.id and x.queue = dead_requeue.queue and x.died_at is not null for update;
    if not found then return false; end if;
    insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body, deadline)
    values (at, postdate.next_at_of(at, 'g', postdate.fence_for_store()), row_id, 'g', 'postdate.return', l.routing_key, l.properties, l.body, l.deadline);
    update postdate.lineage x
       set message = row_id, died_at = null, failed = 0, error = null, properties = null, body = null, changed_at = clock_timestamp(),
           expires_at = at + interval '30 days'
     where x.id = l.id and x.queue = l.queue;
    perform postdate.wake();
    return true;
end $$;

create function postdate.dead_drop(id uuid, queue text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    delete from postdate.lineage x where x.id = dead_drop.id and x.queue = dead_drop.queue and x.died_at is not null;
    return found;
end $$;

-- Dead letters in the order in which they died: after (µs since 1970, id, queue; null: from the first); those that died before `before_us`. `most` of them.
-- queue_like is a pattern of LIKE; the others are null for any.
create function postdate.dead_page(after_us int8, after_id uuid, after_queue text, queue_like text, reason text, exchange text, routing_key text, scope text[], ids uuid[],
                                   before_us int8, most integer) returns setof postdate.lineage language sql stable as $$
    select l.* from postdate.lineage l
     where l.died_at is not null
       and (after_us is null or (l.died_at, l.id, l.queue) > (timestamptz '1970-01-01 00:00:00+00' + after_us * interval '1 us', after_id, after_queue))
       and (queue_like is null or l.queue like queue_like)
       and (dead_page.reason is null or l.reason = dead_page.reason)
       and (dead_page.exchange is null or l.exchange = dead_page.exchange)
       and (dead_page.routing_key is null or l.routing_key = dead_page.routing_key)
       and (scope is null or l.exchange = any (scope))
       and (ids is null or l.id = any (ids))
       and (before_us is null or l.died_at < timestamptz '1970-01-01 00:00:00+00' + before_us * interval '1 us')
     order by l.died_at, l.id, l.queue limit most
$$;

-- When a message is tried next, and whether it waits. The day is known when its statement is planned, so that one partition is looked at: a join
-- by the column planned all of them, which took 120 ms with two years of days.
create function postdate.message_waits(id uuid, out next_at timestamptz, out waits boolean)
language plpgsql stable strict set plan_cache_mode = force_custom_plan as $$
begin
    select m.next_at, m.state in ('scheduled', 'claimed', 'handed') into message_waits.next_at, message_waits.waits
      from postdate.message_now m where m.id = message_waits.id;
end $$;
