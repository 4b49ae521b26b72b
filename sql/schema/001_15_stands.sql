-- How messages stand: what the row says, or, of a plain one, what the claims say (001_14_batch.sql). Nothing else derives a state.

-- All plain rows up to here are delivered, but those that will never be seen.
create function postdate.settled_to() returns uuid language plpgsql stable cost 1
security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    return (select least(f.to_id, (select b.from_id from postdate.batch b where not b.done order by b.to_id limit 1),
                         (select l.from_id from postdate.late l order by l.from_id limit 1))
              from postdate.frontier f where f.one = 1);
end $$;

-- Of a plain row that may have been claimed: its owner; 0: nobody who is known; null: it is delivered. Where no other way is left, a plan that reads a table
-- from its beginning looks so costly that each call was compiled just in time, for 18 ms: so frontier is read by its key.
create function postdate.batch_owner(id uuid, born xid8) returns integer language plpgsql stable cost 1
security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
    b record;
begin
    if batch_owner.id > (select f.to_id from postdate.frontier f where f.one = 1) then return 0; end if;
    select x.owner, x.from_id, x.upto, x.done, x.snapshot, x.skipped, x.pending into b from postdate.batch x
     where x.to_id >= batch_owner.id order by x.to_id limit 1;
    if not found or b.from_id >= batch_owner.id then return null; end if; -- of a claim that is not kept
    if not pg_visible_in_snapshot(born, b.snapshot) or batch_owner.id = any (b.skipped) then return 0; end if;
    return case when not b.done and (batch_owner.id > coalesce(b.upto, b.from_id) or batch_owner.id = any (b.pending)) then b.owner end;
end $$;

-- What is plain and due up to here may be claimed now.
create function postdate.fence_at() returns timestamptz language plpgsql stable cost 1 security definer set search_path = pg_catalog, pg_temp as $$
begin
    return (select timestamptz 'epoch' + x.last_value * interval '1 ms' from postdate.fence x);
end $$;

-- The same columns, whether plain or not. For looking up and listing; what finds rows by their state asks the table. What is plain and may be claimed now
-- counts as claimed, by nobody who is known: owner 0. A join would cost a list the order of its rows. Most rows are behind settled_to or beyond the fence, so only
-- the few between are asked for their batch; that is left to a function that calls itself cheap, for a view that looks costly is compiled just in time, for seconds.
create view postdate.message_now as
select m.due, coalesce(nullif(m.next_at, 'infinity'), m.due) as next_at, m.created_at,
       case when m.next_at is not null then m.settled_at
            when m.due > (select postdate.fence_at()) then null
            when m.id <= (select postdate.settled_to()) or postdate.batch_owner(m.id, m.born) is null then
                 (select x.settled_at from (select b.from_id, b.settled_at from postdate.batch b where b.to_id >= m.id order by b.to_id limit 1) x where x.from_id < m.id)
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

-- The message as it stands. Who locked it before reads the fence after the lock.
create function postdate.message_stands(m postdate.message) returns postdate.message
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    n record;
begin
    if m.rate is not null then m.next_at := m.due; end if;
    if m.id is null or m.next_at is not null then return m; end if;
    if m.due > postdate.fence_at() then
        m.next_at := m.due;
        return m;
    end if;
    select x.state, x.owner, x.settled_at, x.attempts into n from postdate.message_now x where x.id = m.id;
    m.next_at := m.due;
    m.state := n.state;
    m.owner := n.owner;
    m.settled_at := n.settled_at;
    m.attempts := n.attempts;
    return m;
end $$;

-- For who has the row locked, and judged it since: judged again it could be too late, for claims move the fence on, though they pass over what is locked.
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
