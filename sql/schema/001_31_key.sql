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
        when m.state = 'delivered' and postdate.lately(m.settled_at, key_memory_ms) then 'delivered'
        else 'free' end;
end $$;

-- Books a key for a new message: standing is null then. Else it is how the message stands that has the key: replace is refused only where that is claimed.
-- Keeping locks nothing: a caller's open transaction must not delay the message that it found.
create function postdate.key_decide(place text, name text, new_due timestamptz, new_id uuid, on_conflict text, key_memory_ms bigint, out standing text, out holder uuid)
language plpgsql set plan_cache_mode = force_custom_plan as $$
begin
    for i in 1..100 loop
        standing := null;
        insert into postdate.key (exchange, key, due, id) values (place, name, new_due, new_id) on conflict do nothing;
        if found then return; end if;
        select k.id into holder from postdate.key k where k.exchange = place and k.key = name;
        continue when not found;
        standing := postdate.key_standing(holder, key_memory_ms);
        if standing <> 'free' and on_conflict <> 'replace' then return; end if;
        perform from postdate.key k where k.exchange = place and k.key = name and k.id = holder for update;
        continue when not found;
        standing := postdate.key_standing(holder, key_memory_ms);
        continue when standing <> 'free' and on_conflict <> 'replace';
        if standing = 'live' and not postdate.message_supersede(holder, new_id) then
            standing := postdate.key_standing(holder, key_memory_ms);
            continue when standing = 'live';
        end if;
        if standing = 'claimed' then return; end if;
        update postdate.key k set due = new_due, id = new_id where k.exchange = place and k.key = name;
        standing := null;
        return;
    end loop;
    perform postdate.refuse('the key is taken over by other messages too fast', 'Key ' || postdate.shown(name) || '.', 'Try again.', '40001');
end $$;

-- The same of many messages; null of one without a row. A plan of its own reads just the days that they are in.
create function postdate.keys_standing(ids uuid[], key_memory_ms bigint) returns text[] language plpgsql
set plan_cache_mode = force_custom_plan set enable_hashjoin = on set enable_sort = on set jit = off as $$
begin
    return array(
        select case when m.state is null then 'free'
                    when m.state = 'scheduled' and m.owner is null then 'live'
                    when m.state in ('scheduled', 'claimed', 'handed') then 'claimed'
                    when m.state = 'delivered' and postdate.lately(m.settled_at, key_memory_ms) then 'delivered'
                    else 'free' end
          from unnest(ids) with ordinality t (id, n)
          left join (select x.id, x.state, x.owner, x.settled_at from postdate.message_now x where x.id = any (ids)) m on m.id = t.id
         order by t.n);
end $$;

-- What becomes of many keys that are taken, each another one, as key_decide does it: of each the message that has the key, and an outcome: 'taken' by that one;
-- 'had' by the new one, which may supersede it. 'open' where somebody has the key or the message locked, or changes them just now: nothing waits here, and
-- key_decide has to ask for those. Each statement sees what the locks before it guard: first the key's row, then the message's, then how it stands.
create function postdate.keys_decide(places text[], names text[], new_dues timestamptz[], new_ids uuid[], conflicts text[], key_memory_ms bigint,
                                     out holders uuid[], out outcomes text[])
language plpgsql set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = on set jit = off as $$
declare
    looked text[];
    standings text[];
    mine bigint[];   -- whose key's row is locked
    locked uuid[];   -- messages
begin
    holders := array(select k.id from unnest(places, names) with ordinality t (place, name, n)
                       left join postdate.key k on k.exchange = t.place and k.key = t.name order by t.n);
    looked := postdate.keys_standing(array(select case when t.conflict <> 'replace' then t.holder end from unnest(holders, conflicts) with ordinality t (holder, conflict, n)
                                            order by t.n), key_memory_ms);
    mine := array(select t.n from unnest(places, names, holders, looked, conflicts) with ordinality t (place, name, holder, standing, conflict, n)
                    join postdate.key k on k.exchange = t.place and k.key = t.name and k.id = t.holder
                   where t.standing = 'free' or t.conflict = 'replace' order by t.n for update of k skip locked);
    if mine <> '{}' then
        locked := array(select t.holder from unnest(holders, conflicts) with ordinality t (holder, conflict, n) where t.conflict = 'replace' and t.n = any (mine));
        locked := array(select m.id from postdate.message m where m.id = any (locked) for update skip locked);
        standings := postdate.keys_standing(holders, key_memory_ms);
    end if;
    outcomes := array(select case when t.standing <> 'free' and t.conflict <> 'replace' then 'taken'
                                  when not t.n = any (mine) then 'open'
                                  when t.again = 'free' or t.again = 'delivered' and t.conflict = 'replace' then 'had'
                                  when t.again = 'claimed' or t.conflict <> 'replace' then 'taken'
                                  when t.holder = any (locked) then 'supersedes'
                                  else 'open' end
                        from unnest(holders, looked, standings, conflicts) with ordinality t (holder, standing, again, conflict, n) order by t.n);
    locked := array(select t.holder from unnest(holders, outcomes) with ordinality t (holder, outcome, n) where t.outcome = 'supersedes' order by t.n);
    if locked <> '{}' then
        update postdate.message x
           set state = 'superseded', next_at = case when x.next_at is null or x.rate is not null then x.due else x.next_at end, rate = null,
               settled_at = clock_timestamp(), body = '', properties = '', properties_json = null, error = null
         where x.id = any (locked);
        perform postdate.moved_note_all(locked, array(select t.new_id from unnest(new_ids, outcomes) with ordinality t (new_id, outcome, n) where t.outcome = 'supersedes' order by t.n));
        outcomes := array_replace(outcomes, 'supersedes', 'had');
    end if;
    update postdate.key k set due = t.new_due, id = t.new_id from unnest(places, names, new_dues, new_ids, outcomes) t (place, name, new_due, new_id, outcome)
     where t.outcome = 'had' and k.exchange = t.place and k.key = t.name;
end $$;

-- Books the draft's key. Null: done, the message may be stored; else the id of the message that keeps the key.
create function postdate.key_take(d postdate.draft, s postdate.settings) returns uuid language plpgsql as $$
declare
    k record := postdate.key_decide(d.exchange, d.key, d.due, d.id, d.on_conflict, s.key_memory_ms);
begin
    if k.standing is null then return null; end if;
    if d.on_conflict = 'keep' then return k.holder; end if;
    perform postdate.refuse(case d.on_conflict when 'reject' then 'the key is taken' else 'it is too late to replace the message' end,
        'Key ' || postdate.shown(d.key) || ' of exchange ' || postdate.shown(d.exchange) || ' names message ' || k.holder
            || case d.on_conflict when 'reject' then '.' else ', which is being delivered.' end,
        case d.on_conflict when 'reject' then 'Use another key, or on_conflict keep or replace.' else 'Use another key, or try again after its delivery.' end,
        case d.on_conflict when 'reject' then '23505' else '55000' end);
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
