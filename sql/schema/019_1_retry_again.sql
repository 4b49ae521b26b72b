-- Version 19: which refusals were counted, so that one that RabbitMQ delivers again is told from another message that is the same; and what a requeue
-- must not outlive.
alter table postdate.lineage add column refusals uuid[] not null default '{}';  -- the last ten that were counted (core/message/dead_letter.h)
alter table postdate.lineage add column deadline timestamptz;                   -- of the message

-- Its content is made by the janitor (core/message/dead_letter.c): here the first bytes that looked like the header were patched, whatever they were.
drop function postdate.return_anew(bytea);

-- Sends a dead letter back to its queue, due at `due`, with its attempts counted anew. After its deadline it is not delivered, and ends as a dead
-- letter again. False: it is not there, or not dead any more.
create or replace function postdate.dead_requeue(id uuid, queue text, due timestamptz default clock_timestamp()) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    l postdate.lineage;
    at timestamptz := date_trunc('milliseconds', greatest(due, clock_timestamp()));
    row_id uuid := postdate.id_make(at);
begin
    select * into l from postdate.lineage x where x.id = dead_requeue.id and x.queue = dead_requeue.queue and x.died_at is not null for update;
    if not found then return false; end if;
    insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body, deadline)
    values (at, at, row_id, 'g', 'postdate.return', l.routing_key, l.properties, l.body, l.deadline);
    update postdate.lineage x
       set message = row_id, died_at = null, failed = 0, error = null, properties = null, body = null, changed_at = clock_timestamp(),
           expires_at = at + interval '30 days'
     where x.id = l.id and x.queue = l.queue;
    notify postdate_wake;
    return true;
end $$;
