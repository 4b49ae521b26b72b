-- Version 2, part 4 of 6: keys, cancel, reschedule, retry. Locks are taken in one order, the key's row before the message's.
-- Look-ups of messages name `due`, so that one partition is planned and locked: callers below set custom plans.

create function postdate.moved_latest(id uuid) returns uuid language sql stable as $$
    select coalesce((select f.latest_id from postdate.moved m join postdate.moved f on f.id = m.first_id where m.id = moved_latest.id), moved_latest.id)
$$;

create function postdate.moved_note(old_id uuid, new_id uuid) returns void language plpgsql as $$
declare
    first uuid := (select m.first_id from postdate.moved m where m.id = old_id);
begin
    if first is null then
        insert into postdate.moved (id, first_id, latest_id) values (old_id, old_id, new_id);
    else
        update postdate.moved m set latest_id = new_id where m.id = first;
    end if;
    insert into postdate.moved (id, first_id) values (new_id, coalesce(first, old_id));
end $$;

create function postdate.message_supersede(old_id uuid, new_id uuid) returns boolean language plpgsql as $$
begin
    update postdate.message m
       set state = 'superseded', settled_at = clock_timestamp(), body = '', properties = '', properties_json = null, error = null
     where m.due = postdate.id_due(old_id) and m.id = old_id and m.state in ('scheduled', 'failed') and m.owner is null;
    if found then perform postdate.moved_note(old_id, new_id); end if;
    return found;
end $$;

-- How a key stands: free, live, claimed (can't be replaced any more), delivered (and remembered).
create function postdate.key_standing(id uuid, key_memory_ms bigint) returns text language plpgsql as $$
declare
    m record;
begin
    select x.state, x.owner, x.settled_at into m from postdate.message x where x.due = postdate.id_due(key_standing.id) and x.id = key_standing.id;
    return case
        when m.state is null then 'free'
        when m.state = 'scheduled' and m.owner is null then 'live'
        when m.state in ('scheduled', 'claimed', 'handed') then 'claimed'
        when m.state = 'delivered' and m.settled_at >= clock_timestamp() - key_memory_ms * interval '1 millisecond' then 'delivered'
        else 'free' end;
end $$;

-- Books the draft's key. Null: done, the message may be stored; else the id of the message that keeps the key.
-- Keeping locks nothing: a caller's open transaction must not delay the message that it found.
create function postdate.key_take(d postdate.draft, s postdate.settings) returns uuid
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    holder uuid;
    standing text;
begin
    for i in 1..100 loop
        insert into postdate.key (exchange, key, due, id) values (d.exchange, d.key, d.due, d.id) on conflict do nothing;
        if found then return null; end if;
        select k.id into holder from postdate.key k where k.exchange = d.exchange and k.key = d.key;
        continue when not found;
        standing := postdate.key_standing(holder, s.key_memory_ms);
        if standing <> 'free' and d.on_conflict = 'keep' then return holder; end if;
        if standing <> 'free' and d.on_conflict = 'reject' then
            perform postdate.refuse('the key is taken', 'Key ' || postdate.shown(d.key) || ' of exchange ' || postdate.shown(d.exchange)
                || ' names message ' || holder || '.', 'Use another key, or on_conflict keep or replace.', '23505');
        end if;
        perform from postdate.key k where k.exchange = d.exchange and k.key = d.key and k.id = holder for update;
        continue when not found;
        standing := postdate.key_standing(holder, s.key_memory_ms);
        continue when standing <> 'free' and d.on_conflict <> 'replace';
        if standing = 'live' and not postdate.message_supersede(holder, d.id) then
            standing := postdate.key_standing(holder, s.key_memory_ms);
            continue when standing = 'live';
        end if;
        if standing = 'claimed' then
            perform postdate.refuse('it is too late to replace the message', 'Key ' || postdate.shown(d.key) || ' of exchange '
                || postdate.shown(d.exchange) || ' names message ' || holder || ', which is being delivered.',
                'Use another key, or try again after its delivery.', '55000');
        end if;
        update postdate.key k set due = d.due, id = d.id where k.exchange = d.exchange and k.key = d.key;
        return null;
    end loop;
    perform postdate.refuse('the key changes hands too fast', 'Key ' || postdate.shown(d.key) || '.', 'Try again.', '40001');
end $$;

-- For a message that comes to life again, or moves: its key names new_id. False: the key names another live message by now.
create function postdate.key_regain(exchange text, key text, old_id uuid, new_id uuid, key_memory_ms bigint) returns boolean
language plpgsql as $$
declare
    holder uuid;
begin
    insert into postdate.key as k (exchange, key, due, id) values (key_regain.exchange, key_regain.key, postdate.id_due(new_id), new_id)
        on conflict on constraint key_pkey do update set due = excluded.due, id = excluded.id where k.id = old_id;
    if found then return true; end if;
    select k.id into holder from postdate.key k where k.exchange = key_regain.exchange and k.key = key_regain.key for update;
    if found and postdate.key_standing(holder, key_memory_ms) <> 'free' then return false; end if;
    update postdate.key k set due = postdate.id_due(new_id), id = new_id where k.exchange = key_regain.exchange and k.key = key_regain.key;
    return found;
end $$;

-- The current message under any id it ever had, locked, on demand together with its key. Null id: there is none (in the scope).
create function postdate.message_lock(wanted uuid, scope text[], with_key boolean) returns postdate.message language plpgsql as $$
declare
    m postdate.message;
    latest uuid;
    named text;
    place text;
begin
    for i in 1..100 loop
        latest := postdate.moved_latest(wanted);
        select x.key, x.exchange into named, place from postdate.message x
         where x.due = postdate.id_due(latest) and x.id = latest and (scope is null or x.exchange = any (scope));
        if not found then return null; end if;
        if with_key and named is not null then
            perform from postdate.key k where k.exchange = place and k.key = named and k.id = latest for update;
        end if;
        select * into m from postdate.message x where x.due = postdate.id_due(latest) and x.id = latest for update;
        exit when m.state is distinct from 'superseded' or postdate.moved_latest(wanted) = latest;
    end loop;
    return m;
end $$;

-- 'done', 'too_late', 'not_found'; latest is the id that the message has now. The key's row stays: it is free, as its message
-- is cancelled, and whoever cancels by key again gets the same answer.
create function postdate.do_cancel(wanted uuid, scope text[], out result text, out latest uuid)
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    m record;
begin
    -- What is settled or under way is answered without a lock.
    latest := postdate.moved_latest(wanted);
    select x.state, x.owner into m from postdate.message x
     where x.due = postdate.id_due(latest) and x.id = latest and (scope is null or x.exchange = any (scope));
    if not found then
        result := 'not_found';
        return;
    end if;
    if m.state in ('scheduled', 'failed', 'superseded') and m.owner is null then
        m := postdate.message_lock(wanted, scope, false);
        latest := coalesce(m.id, latest);
    end if;
    if m.state = 'cancelled' then
        result := 'done';
    elsif m.state = 'superseded' then
        result := 'not_found'; -- what it became was delivered or cancelled, and removed, long ago: who knows which
    elsif m.state in ('scheduled', 'failed') and m.owner is null then
        update postdate.message x
           set state = 'cancelled', settled_at = clock_timestamp(), body = '', properties = '', properties_json = null, error = null
         where x.due = m.due and x.id = m.id;
        perform postdate.commit_durably();
        result := 'done';
    else
        result := case when m.state is null then 'not_found' else 'too_late' end;
    end if;
end $$;

-- Due at `at`, or moved by `shift`. Also 'key_taken', 'too_far'.
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
    if m.state not in ('scheduled', 'failed') or m.owner is not null then
        result := 'too_late';
        return;
    end if;
    new_due := coalesce(at, m.due + shift);
    if new_due > now_at + s.max_delay_ms * interval '1 millisecond' then
        result := 'too_far';
        return;
    end if;
    m.due := postdate.due_round(new_due, now_at);
    m.id := postdate.id_make(m.due);
    if m.key is not null and not postdate.key_regain(m.exchange, m.key, old_id, m.id, s.key_memory_ms) then
        result := 'key_taken';
        return;
    end if;
    insert into postdate.message (due, next_at, created_at, id, hold, exchange, routing_key, key, properties, properties_json, body)
    values (m.due, m.due, now_at, m.id, m.hold, m.exchange, m.routing_key, m.key, m.properties, m.properties_json, m.body);
    perform postdate.message_supersede(old_id, m.id);
    perform postdate.after_write(s, m.due, now_at);
    latest := m.id;
    result := 'done';
end $$;

-- Tried again at once. Also 'not_failed', 'key_taken'.
create function postdate.do_retry(wanted uuid, scope text[], out result text, out latest uuid)
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    s postdate.settings;
    m postdate.message;
    now_at timestamptz := clock_timestamp();
begin
    select * into strict s from postdate.settings;
    m := postdate.message_lock(wanted, scope, true);
    latest := m.id;
    if m.id is null then
        result := 'not_found';
    elsif m.state <> 'failed' then
        result := 'not_failed';
    elsif m.key is not null and not postdate.key_regain(m.exchange, m.key, m.id, m.id, s.key_memory_ms) then
        result := 'key_taken';
    else
        update postdate.message x
           set state = 'scheduled', settled_at = null, next_at = greatest(x.due, postdate.due_round(now_at, now_at)), attempts = 0, error = null
         where x.due = m.due and x.id = m.id;
        perform postdate.after_write(s, m.due, now_at);
        result := 'done';
    end if;
end $$;

-- One chunk of a bulk operation: those of ids that nobody has locked. Returns how many were changed.
create function postdate.do_bulk(operation text, ids uuid[], shift interval, scope text[]) returns integer
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    one uuid;
    done integer := 0;
    result text;
begin
    for one in
        select x.id from postdate.message x
         where x.id = any (ids) and x.due >= postdate.id_due(ids[1]) and x.due <= postdate.id_due(ids[cardinality(ids)])
         order by x.id for update skip locked
    loop
        result := case operation
            when 'cancel' then (postdate.do_cancel(one, scope)).result
            when 'reschedule' then (postdate.do_reschedule(one, null, shift, scope)).result
            else (postdate.do_retry(one, scope)).result end;
        done := done + (result = 'done')::integer;
    end loop;
    return done;
end $$;
