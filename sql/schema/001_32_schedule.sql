-- Scheduling, one message at a time.

-- Committed means flushed, whatever the caller's session has set: an accepted or cancelled message stays so if PostgreSQL crashes.
create function postdate.commit_durably() returns void language plpgsql as $$
begin
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
end $$;

-- A hint; without it gateways find messages due soon at their next look. It must not make the transaction fail, as a COMMIT with a NOTIFY does if the NOTIFY queue
-- is full: so no notification is sent when it is more than half full, or when the disk that it is on is full (then asking how full it is fails). Sessions of gateways
-- and of the command line say `set postdate.notify = off`, and notify after they have committed, if at all. So do clients of prepared transactions, because PostgreSQL
-- cannot prepare a transaction with a NOTIFY.
create function postdate.wake() returns void language plpgsql as $$
begin
    if current_setting('postdate.notify', true) is distinct from 'off' and pg_notification_queue_usage() < 0.5 then
        perform pg_notify('postdate_wake', '');
    end if;
exception when disk_full then
    return;
end $$;

-- Gateways find messages that are due later than wake_ms in time; a NOTIFY serialises commits, so only messages that are due sooner get one.
create function postdate.after_write(s postdate.settings, first_due timestamptz, now_at timestamptz) returns void language plpgsql as $$
begin
    perform postdate.commit_durably();
    if first_due < now_at + s.wake_ms * interval '1 millisecond' then
        perform postdate.wake();
    end if;
end $$;

-- Answers as the key rules say: the new id, or the id of the message that was kept.
create function postdate.draft_store(d postdate.draft, s postdate.settings, now_at timestamptz) returns uuid language plpgsql as $$
declare
    kept uuid := case when d.key is not null then postdate.key_take(d, s) end;
begin
    if kept is not null then return kept; end if;
    insert into postdate.message (due, next_at, created_at, id, hold, exchange, routing_key, key, properties, properties_json, body, deadline)
    values (d.due, postdate.next_at_of(d.due, d.hold, postdate.fence_for_store()), now_at, d.id, d.hold, d.exchange, d.routing_key, d.key, d.properties, d.properties_json, d.body, d.deadline);
    perform postdate.after_write(s, d.due, now_at);
    return d.id;
end $$;

-- One message.
create function postdate.accept(routing_key text, body bytea, body_kind "char", delay interval, due_at timestamptz, exchange text, headers jsonb,
                                properties jsonb, key text, on_conflict text, hold text, deadline timestamptz, spread interval)
returns uuid language plpgsql as $$
declare
    s postdate.settings;
    d postdate.draft;
    now_at timestamptz := clock_timestamp();
begin
    if (delay is null) = (due_at is null) then
        perform postdate.refuse(case when delay is null then 'the due time is missing' else 'the due time is given twice' end,
            'delay is ' || postdate.shown(delay::text) || ', due_at is ' || postdate.shown(due_at::text) || '.', 'Give exactly one of delay and due_at.');
    end if;
    select * into strict s from postdate.settings;
    d := postdate.draft_make(s, now_at, routing_key, body, body_kind, coalesce(due_at, now_at + delay), exchange, headers, properties, key, on_conflict, hold);
    if spread is not null or deadline is not null then d := postdate.draft_times(d, s, now_at, spread, properties ->> 'message_id', deadline); end if;
    return postdate.draft_store(d, s, now_at);
end $$;

-- Of a body of each type.
do $$
declare
    kind text;
begin
    foreach kind in array '{text,bytea,json,jsonb}'::text[] loop
        execute format($f$
create function postdate.schedule(routing_key text, body %1$s, delay interval default null, due_at timestamptz default null,
                                  exchange text default null, headers jsonb default null, properties jsonb default null,
                                  key text default null, on_conflict text default 'keep', hold text default null, deadline timestamptz default null,
                                  spread interval default null)
returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $b$
begin
    return postdate.accept(routing_key, %2$s, %3$L, delay, due_at, exchange, headers, properties, key, on_conflict, hold, deadline, spread);
end $b$ $f$, kind, case kind when 'bytea' then 'body' when 'text' then $e$convert_to(body, 'UTF8')$e$ else $e$convert_to(body::text, 'UTF8')$e$ end,
            case when kind in ('json', 'jsonb') then 'j' else 't' end);
    end loop;
end $$;
