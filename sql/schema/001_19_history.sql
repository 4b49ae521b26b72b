-- The history of this database: a number that rises once a second while a gateway runs, and is never used again. Gateways also store it elsewhere: in memory, and in
-- RabbitMQ (amqp/topology/topology.h). A database with a lower number than a stored one has lost commits: it was restored, or a standby that lagged was promoted. It
-- is not the position in the WAL, which starts again in another server, and may have been passed again by the time of the comparison.
create table postdate.history (
    one         boolean primary key default true check (one),
    lineage     uuid not null default gen_random_uuid(), -- of the numbers: a copy of this database has the same one
    number      bigint not null default 0,
    at          timestamptz not null default now(),      -- when it was incremented
    held_until  timestamptz not null default now(),      -- all messages that RabbitMQ holds are due before
    -- The last time that a loss of commits was found.
    lost_number bigint not null default 0,               -- the number at that time; 0: never
    lost_found  timestamptz,
    lost_from   timestamptz,                             -- commits after this …
    lost_to     timestamptz,                             -- … and up to a second after this are lost
    look_until  timestamptz,                             -- all messages that RabbitMQ held then are due before this
    lost_due    bigint,                                  -- how many messages were due in that time and are not delivered in this database; null: could not be counted
    back_at     timestamptz                              -- when its clock was found set back last; null: never
) with (fillfactor = 50);
insert into postdate.history default values;

-- How many messages were due in that time and are not settled, up to 100,000: those that a gateway that no longer exists has delivered are delivered again. Null:
-- such a day is locked; the count does not wait.
create function postdate.history_due(from_ timestamptz, to_ timestamptz) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set lock_timeout = '100ms' as $$
begin
    return (select count(*) from (select from postdate.message_now m
                                   where m.id >= postdate.id_floor(from_) and m.id < postdate.id_floor(to_) and m.settled_at is null
                                     and m.state in ('scheduled', 'claimed', 'handed') limit 100000) x);
exception when others then
    return null;
end $$;

-- Compares the database with a point that a gateway knows: the number `known`, its time, and up to when RabbitMQ held messages then (nulls: none); a point of
-- another lineage is ignored. Does not wait for another gateway that increments the number. held_ms: handover.window.
create function postdate.history_note(known_lineage uuid, known bigint, known_at timestamptz, known_until timestamptz, held_ms bigint) returns postdate.history
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    h postdate.history;
    at_ timestamptz := clock_timestamp();
    until_ timestamptz := at_ + held_ms * interval '1 ms';
begin
    select * into h from postdate.history;
    if known_lineage = h.lineage and known > h.number then
        select * into h from postdate.history for update; -- one of several gateways that find it reports it
        if known > h.number then
            update postdate.history x
               set number = known + 1, at = at_, held_until = greatest(x.held_until, until_), lost_number = known + 1, lost_found = at_, lost_from = x.at,
                   lost_to = greatest(known_at, x.at), lost_due = postdate.history_due(x.at - interval '5 s', greatest(known_at, x.at) + interval '2 s'), look_until = greatest(x.held_until, until_, known_until)
            returning * into h;
        end if;
    elsif h.at <= at_ - interval '1 s' or h.at > at_ then -- in the future: the clock was set back
        perform from postdate.history for update skip locked;
        if found then
            update postdate.history x
               set number = x.number + 1, at = at_, held_until = greatest(x.held_until, until_), back_at = case when x.at > at_ + interval '1 s' then at_ else x.back_at end
            returning * into h;
        end if;
    end if;
    return h;
end $$;

-- Is the time within the last within_ms ms? A time in the future was written while the clock was ahead, so it is replaced by the time at which the clock was set
-- back. So a wrong clock does not prolong the retention of records.
create function postdate.lately(at timestamptz, within_ms bigint) returns boolean language plpgsql volatile as $$
begin
    if at > clock_timestamp() + interval '1 s' then
        return coalesce((select h.back_at >= clock_timestamp() - within_ms * interval '1 ms' from postdate.history h), false);
    end if;
    return at >= clock_timestamp() - within_ms * interval '1 ms';
end $$;

-- Records again that these messages were delivered, in a database that may have lost that, or their claim: also for rows that are not claimed. Returns how many it
-- had lost. Locked rows are left out; a schedule whose row is among them continues.
create function postdate.history_delivered(wanted uuid[]) returns integer
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    lost uuid[] := array(select x.id from postdate.message_now x
                          where x.id = any (wanted) and x.settled_at is null and x.state in ('scheduled', 'claimed', 'handed'));
    held uuid[];
    n integer;
begin
    if lost = '{}' then return 0; end if; -- of an empty list no day is pruned
    lost := array(select m.id from postdate.message m
                   where m.id = any (lost) and m.settled_at is null and m.state in ('scheduled', 'claimed', 'handed') order by m.id for update skip locked);
    if lost = '{}' then return 0; end if;
    select postdate.recur_claim(array_agg(m.recur), array_agg(m.id)) into held from postdate.message m where m.id = any (lost) and m.recur is not null;
    perform set_config('synchronous_commit', 'on', true);
    update postdate.message m
       set state = 'delivered', owner = null, rate = null, recur = null, late_at = null, error = null, attempts = m.attempts + 1, settled_at = clock_timestamp(),
           next_at = case when m.rate is not null then m.due else coalesce(m.next_at, m.due) end
     where m.id = any (lost) and m.id <> all (coalesce(held, '{}'));
    get diagnostics n = row_count;
    return n;
end $$;

-- Stores messages again that RabbitMQ held and whose rows the database has lost: as handed over. RabbitMQ has neither key nor deadline. Messages of a dropped day
-- are left out: they were settled long ago. Returns how many were stored.
create function postdate.history_store(ids uuid[], exchanges text[], routing_keys text[], properties_ bytea[], bodies bytea[], grace_ms bigint) returns integer
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    n integer := 0;
begin
    for i in 1 .. cardinality(ids) loop
        begin
            insert into postdate.message (due, next_at, id, hold, state, exchange, routing_key, properties, body)
            values (postdate.id_due(ids[i]), postdate.id_due(ids[i]) + grace_ms * interval '1 ms', ids[i], 'b', 'handed', exchanges[i], routing_keys[i], properties_[i], bodies[i])
            on conflict do nothing;
            n := n + found::int;
        exception when check_violation then
            null; -- no partition has it
        end;
    end loop;
    perform set_config('synchronous_commit', 'on', true);
    return n;
end $$;
