-- The present state of messages: from the row or, of a plain one, from the claims (001_14_batch.sql). Nothing else derives a state.

-- All plain rows up to here are delivered, except those that will never be visible. Reads open claims, from the last known position on.
create function postdate.settled_to() returns uuid language plpgsql stable cost 1
security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
declare
    low uuid := postdate.settled_floor();
    top uuid := postdate.late_from();
    begins uuid;
begin
    select b.from_id into begins from postdate.batch b where not b.done and b.to_id > low and b.to_id <= top order by b.to_id limit 1;
    if not found then -- the claim may have begun before
        select x.from_id into begins from (select b.from_id, b.done from postdate.batch b where b.to_id > top order by b.to_id limit 1) x where not x.done;
    end if;
    return least(top, begins);
end $$;

-- Of a plain row that may be claimed: its owner; 0: unknown; null: delivered. Reads the one claim that has the row, by keys only: a plan with a sequential scan
-- looks so costly that each call was compiled just in time, for 18 ms.
create function postdate.batch_owner(id uuid, born xid8) returns integer language plpgsql stable cost 1
security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    b record;
    p record;
begin
    select x.id, x.owner, x.from_id, x.done, x.snapshot, x.skipped into b from postdate.batch x
     where x.to_id >= batch_owner.id order by x.to_id limit 1;
    if not found then return 0; end if; -- beyond the frontier
    if b.from_id >= batch_owner.id or b.snapshot is null then return null; end if; -- of a claim that was removed, or merged
    if not pg_visible_in_snapshot(born, b.snapshot) or batch_owner.id = any (b.skipped) then return 0; end if;
    if b.done then return null; end if;
    select x.upto, x.pending into p from postdate.batch_position x where x.batch = b.id;
    return case when batch_owner.id > coalesce(p.upto, b.from_id) or batch_owner.id = any (p.pending) then b.owner end;
end $$;

-- When a delivered plain row was delivered.
create function postdate.batch_settled_at(id uuid) returns timestamptz language plpgsql stable cost 1
security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    return (select coalesce(x.settled_at, (select p.settled_at from postdate.batch_position p where p.batch = x.id))
              from (select b.id, b.from_id, b.settled_at from postdate.batch b where b.to_id >= batch_settled_at.id order by b.to_id limit 1) x
             where x.from_id < batch_settled_at.id);
end $$;

-- Plain rows due up to here may be claimed now.
create function postdate.fence_at() returns timestamptz language plpgsql stable cost 1 security definer set search_path = pg_catalog, pg_temp as $$
begin
    return (select timestamptz 'epoch' + x.last_value * interval '1 ms' from postdate.fence x);
end $$;

-- Messages with the same columns, plain or not. For look-ups and lists; searches by state query the table. A plain row that may be claimed now is shown as claimed,
-- with owner 0 (unknown). A join would lose the order of a list. Most rows are before settled_to or after the fence, so the batch is read for the few in between
-- only, by a function that is declared cheap, because a view that looks costly is compiled just in time, for seconds.
create view postdate.message_now as
select m.due, case when m.rate is not null then m.due else coalesce(m.next_at, m.due) end as next_at, m.created_at,
       case when m.next_at is not null then m.settled_at
            when m.due > (select postdate.fence_at()) then null
            when m.id <= (select postdate.settled_to()) or postdate.batch_owner(m.id, m.born) is null then
                 (select coalesce(x.settled_at, (select p.settled_at from postdate.batch_position p where p.batch = x.id))
                    from (select b.id, b.from_id, b.settled_at from postdate.batch b where b.to_id >= m.id order by b.to_id limit 1) x where x.from_id < m.id)
            end as settled_at,
       m.deadline, m.late_at, m.recur, m.id,
       case when m.next_at is not null then m.owner
            when m.due > (select postdate.fence_at()) or m.id <= (select postdate.settled_to()) then null
            else postdate.batch_owner(m.id, m.born) end as owner,
       case when m.next_at is not null then m.attempts
            when m.due > (select postdate.fence_at()) then 0
            when m.id <= (select postdate.settled_to()) or postdate.batch_owner(m.id, m.born) is null then 1 else 0 end as attempts,
       case when m.next_at is not null then m.state
            when m.due > (select postdate.fence_at()) then 'scheduled'
            when m.id <= (select postdate.settled_to()) or postdate.batch_owner(m.id, m.born) is null then 'delivered' else 'claimed' end as state,
       m.rate, m.hold, m.isolate, m.doubted, m.exchange, m.routing_key, m.key, m.error, m.properties, m.body, m.properties_json
  from postdate.message m;

-- The message with its present state, as in message_now, by the one claim that has it. A caller that has locked it reads the fence after the lock.
create function postdate.message_stands(m postdate.message) returns postdate.message
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
begin
    if m.rate is not null then m.next_at := m.due; end if;
    if m.id is null or m.next_at is not null then return m; end if;
    if m.due > postdate.fence_at() then
        m.next_at := m.due;
        return m;
    end if;
    m.next_at := m.due;
    m.owner := postdate.batch_owner(m.id, m.born);
    m.state := case when m.owner is null then 'delivered' else 'claimed' end;
    m.attempts := case when m.owner is null then 1 else 0 end;
    m.settled_at := case when m.owner is null then postdate.batch_settled_at(m.id) end;
    return m;
end $$;

-- For a caller that has the row locked, and has checked its state since: a second check could find it too late, because claims move the fence, although they skip
-- locked rows.
create function postdate.message_replaced(old_id uuid, next_at timestamptz, new_id uuid) returns void language plpgsql as $$
begin
    update postdate.message x
       set state = 'superseded', rate = null, next_at = message_replaced.next_at, settled_at = clock_timestamp(), body = '', properties = '', properties_json = null, error = null
     where x.id = old_id;
    perform postdate.moved_note(old_id, new_id);
end $$;

create function postdate.message_supersede(old_id uuid, new_id uuid) returns boolean language plpgsql as $$
declare
    m postdate.message;
begin
    select * into m from postdate.message x where x.id = old_id for update;
    m := postdate.message_stands(m);
    if m.id is null or m.state not in ('scheduled', 'failed') or m.owner is not null then return false; end if;
    perform postdate.message_replaced(m.id, m.next_at, new_id);
    return true;
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
         where x.id = latest and (scope is null or x.exchange = any (scope));
        if not found then return null; end if;
        if with_key and named is not null then
            perform from postdate.key k where k.exchange = place and k.key = named and k.id = latest for update;
        end if;
        select * into m from postdate.message x where x.id = latest for update;
        exit when m.state is distinct from 'superseded' or postdate.moved_latest(wanted) = latest;
    end loop;
    return postdate.message_stands(m);
end $$;
