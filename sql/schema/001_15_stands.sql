-- How messages stand: what the row says, or, of a plain one, what the claims say (001_14_batch.sql). Nothing else derives a state.

-- Estimates count here: a view that looks costly is compiled just in time for each query, which takes a second. So the frontier is one row by its key.
-- The same columns, whether plain or not. For looking up and listing; what finds rows by their state asks the table. What is plain and may be claimed now
-- counts as claimed, by nobody who is known: owner 0. (No function derives it: readers of views need rights on functions, and not on tables.)
create view postdate.message_now as
select m.due, coalesce(m.next_at, m.due) as next_at, m.created_at, case when m.next_at is not null then m.settled_at when p.delivered then b.settled_at end as settled_at,
       m.deadline, m.late_at, m.recur, m.id,
       case when m.next_at is not null then m.owner when p.delivered then null when p.taken then b.owner
            when extract(epoch from m.due) * 1000 <= (select x.last_value from postdate.fence x) then 0 end as owner,
       case when m.next_at is null and p.delivered then 1 else m.attempts end as attempts,
       case when m.next_at is not null then m.state when p.delivered then 'delivered'
            when p.taken or extract(epoch from m.due) * 1000 <= (select x.last_value from postdate.fence x) then 'claimed' else 'scheduled' end as state,
       m.hold, m.isolate, m.doubted, m.exchange, m.routing_key, m.key, m.error, m.properties, m.body, m.properties_json
  from postdate.message m
  join postdate.frontier f on f.one = 1
  left join lateral (
       select x.id, x.owner, x.from_id, x.upto, x.settled_at, x.done, x.snapshot, x.skipped from postdate.batch x
        where m.next_at is null and x.to_id >= m.id and m.id <= f.to_id
        order by x.to_id limit 1) b on b.from_id < m.id
 cross join lateral (
       select m.id <= f.to_id and (b.id is null or pg_visible_in_snapshot(m.born, b.snapshot) and m.id <> all (b.skipped)) as taken) t
 cross join lateral (select t.taken, t.taken and (b.id is null or b.done or m.id <= coalesce(b.upto, b.from_id)) as delivered) p;

-- The message, locked by now, as it stands: the fence is read after the lock.
create function postdate.message_stands(m postdate.message) returns postdate.message
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    n record;
begin
    if m.id is null or m.next_at is not null then return m; end if;
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
       set state = 'superseded', next_at = message_replaced.next_at, settled_at = clock_timestamp(), body = '', properties = '', properties_json = null, error = null
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
