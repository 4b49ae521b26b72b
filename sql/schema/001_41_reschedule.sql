-- Moving a message to another due time.

-- Due at `at`, or moved by `shift`. Also 'key_taken', 'too_far', 'past_deadline': what is moved keeps its deadline, and is not moved beyond it.
create function postdate.do_reschedule(wanted uuid, at timestamptz, shift interval, scope text[], out result text, out latest uuid)
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    s postdate.settings;
    m postdate.message;
    now_at timestamptz := clock_timestamp();
    new_due timestamptz;
    old_id uuid;
begin
    select * into strict s from postdate.settings;
    m := postdate.message_lock(wanted, scope, true);
    if m.id is null then
        result := 'not_found';
        return;
    end if;
    old_id := m.id;
    latest := m.id;
    if m.state not in ('scheduled', 'failed') or m.owner is not null or m.doubted then
        result := 'too_late';
        return;
    end if;
    new_due := coalesce(at, m.due + shift);
    if new_due > now_at + s.max_delay_ms * interval '1 millisecond' then
        result := 'too_far';
        return;
    end if;
    m.due := postdate.due_round(new_due, now_at);
    if m.due > m.deadline then
        result := 'past_deadline';
        return;
    end if;
    m.id := postdate.id_make(m.due, s.cell);
    if m.key is not null and not postdate.key_regain(m.exchange, m.key, old_id, m.id, s.key_memory_ms) then
        result := 'key_taken';
        return;
    end if;
    insert into postdate.message (due, next_at, created_at, id, hold, exchange, routing_key, key, properties, properties_json, body, deadline)
    values (m.due, postdate.next_at_of(m.due, m.hold, postdate.fence_for_store()), now_at, m.id, m.hold, m.exchange, m.routing_key, m.key, m.properties, m.properties_json, m.body, m.deadline);
    perform postdate.message_replaced(old_id, m.next_at, m.id);
    if m.recur is not null then perform postdate.recur_skip(m.recur, old_id); end if;
    perform postdate.after_write(s, m.due, now_at);
    latest := m.id;
    result := 'done';
end $$;

create function postdate.reschedule(id uuid, delay interval default null, due_at timestamptz default null) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    result text;
    at timestamptz := coalesce(due_at, clock_timestamp() + delay);
begin
    if (delay is null) = (due_at is null) then
        perform postdate.refuse(case when delay is null then 'the due time is missing' else 'the due time is given twice' end,
            'delay is ' || postdate.shown(delay::text) || ', due_at is ' || postdate.shown(due_at::text) || '.', 'Give exactly one of delay and due_at.');
    end if;
    perform postdate.check_era(at);
    result := (postdate.do_reschedule(reschedule.id, at, null, null)).result;
    if result = 'too_far' then
        perform postdate.check_due(s, clock_timestamp(), at) from postdate.settings s;
    elsif result = 'past_deadline' then
        perform postdate.refuse('the due time lies after the deadline', 'The message would be due ' || at || '.', 'The deadline cannot be changed: schedule a new message.');
    elsif result = 'key_taken' then
        perform postdate.refuse('the key is taken', 'The failed message''s key now names another message.', 'Cancel that message first, or schedule a new one.', '23505');
    end if;
    return case result when 'done' then 'rescheduled' else result end;
end $$;
