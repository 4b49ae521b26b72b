-- Keys. Locks are taken in one order, the key's row before the message's. Look-ups of messages name `due`, so that one partition is
-- planned and locked: their callers set custom plans.

-- A user's own name for a message, unique per delivery exchange. Whether a key is still taken is read from the message
-- it names (live, or delivered within key_memory), so settling a message does not touch this table.
create table postdate.key (
    exchange text not null,
    key      text not null,
    due      timestamptz not null,
    id       uuid not null,
    primary key (exchange, key)
);
create index key_due on postdate.key (due);
create index key_key on postdate.key (key);

create function postdate.key_named(exchange text, key text) returns uuid language sql stable as $$
    select k.id from postdate.key k where k.exchange = key_named.exchange and k.key = key_named.key
$$;

-- How a key stands: free, live, claimed (can't be replaced any more), delivered (and remembered).
create function postdate.key_standing(id uuid, key_memory_ms bigint) returns text language plpgsql as $$
declare
    m postdate.message;
begin
    select * into m from postdate.message x where x.id = key_standing.id;
    m := postdate.message_stands(m);
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
    -- the key of a schedule names its next occurrence; the others do without
    if key ~ '^recur/' and exists (select from postdate.recur r where r.name = substr(key_regain.key, 7) and r.exchange = key_regain.exchange) then return true; end if;
    insert into postdate.key as k (exchange, key, due, id) values (key_regain.exchange, key_regain.key, postdate.id_due(new_id), new_id)
        on conflict on constraint key_pkey do update set due = excluded.due, id = excluded.id where k.id = old_id;
    if found then return true; end if;
    select k.id into holder from postdate.key k where k.exchange = key_regain.exchange and k.key = key_regain.key for update;
    if found and postdate.key_standing(holder, key_memory_ms) <> 'free' then return false; end if;
    update postdate.key k set due = postdate.id_due(new_id), id = new_id where k.exchange = key_regain.exchange and k.key = key_regain.key;
    return found;
end $$;
