-- The second lane: what RabbitMQ may hold (hold = 'b') is claimed to be handed over, in the order in which it was stored, for of what comes
-- now most is due before the end of the window, which has been handed over long ago. That it was handed over is a position of the batch, like that it
-- was delivered in the other lane.

-- The number of a transaction: what may be handed over, and was stored by one up to it, may be claimed for that now. As fence, it is moved before rows are read.
create sequence postdate.arrival_fence minvalue 0 start 0;

-- Transactions that had not ended when claims passed them, or that store more than one claim takes: claimed one by one, from `after_id` on.
create table postdate.arriving (
    born     xid8 primary key,
    after_id uuid not null default '00000000-0000-0000-0000-000000000000'
);

-- What has an id up to this is not with RabbitMQ any more: it is delivered, or was lost, and waits as a row of its own.
create table postdate.closed (
    one   smallint primary key default 1 check (one = 1),
    to_id uuid not null
) with (fillfactor = 50);
insert into postdate.closed (to_id) values (postdate.id_floor(now()));

-- Of a plain row that may be handed over: who has claimed it for that; -1: RabbitMQ has it; null: nobody has claimed it so.
create function postdate.handover_owner(id uuid, born xid8) returns integer language plpgsql stable cost 1
security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
    b record;
begin
    if handover_owner.id <= (select c.to_id from postdate.closed c where c.one = 1) then return null; end if;
    select x.owner, x.from_born, x.from_id, x.to_id, x.upto, x.done, x.snapshot, x.skipped, x.pending into b from postdate.batch x
     where x.lane = 'b' and x.to_born >= handover_owner.born order by x.to_born limit 1;
    if not found or b.from_born >= born or not pg_visible_in_snapshot(born, b.snapshot) then
        select x.owner, x.from_born, x.from_id, x.to_id, x.upto, x.done, x.snapshot, x.skipped, x.pending into b from postdate.batch x
         where x.lane = 'p' and x.to_born = handover_owner.born and x.to_id >= handover_owner.id order by x.to_id limit 1;
        if not found then return null; end if;
    end if;
    if handover_owner.id <= b.from_id or handover_owner.id > b.to_id or handover_owner.id = any (b.skipped) then return null; end if;
    return case when b.done or handover_owner.id <= b.upto and handover_owner.id <> all (b.pending) then -1 else b.owner end;
end $$;

-- Is a claim that may take what this transaction stored on its way? Who asks has the row locked.
create function postdate.is_arriving(born xid8) returns boolean language plpgsql as $$
begin
    return born::text::bigint <= (select x.last_value from postdate.arrival_fence x)
       and (born > (select f.arrived from postdate.frontier f where f.one = 1) or exists (select from postdate.arriving a where a.born = is_arriving.born));
end $$;

-- Moves the end of the window. What waits behind it and has arrived before arrives anew: its row is written, some at a time. True: there may be more.
create function postdate.window_move(until timestamptz, most integer) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    f postdate.frontier;
    ends uuid := postdate.id_ceiling(until);
    ids_ uuid[];
    locked uuid[];
begin
    perform from postdate.frontier x where x.one = 1 and x.window_to < ends;
    if not found then return false; end if;
    select * into f from postdate.frontier x where x.one = 1 for update skip locked;
    if not found then return false; end if; -- another gateway is claiming: the next time
    ids_ := array(select m.id from postdate.message m
                   where m.id > greatest(f.window_to, f.to_id) and m.id <= ends and m.hold = 'b' and m.next_at is null and m.born <= f.arrived
                   order by m.id limit most);
    if cardinality(ids_) = most then ends := ids_[most]; end if;
    if ids_ <> '{}' then
        locked := array(select m.id from postdate.message m where m.id = any (ids_) and m.next_at is null order by m.id for update skip locked);
        update postdate.message m set born = pg_current_xact_id() where m.id = any (locked);
        if cardinality(locked) < cardinality(ids_) then
            insert into postdate.late (batch, from_id, to_id, ids)
            select 0, f.window_to, ends, array(select i from unnest(ids_) i where i <> all (locked));
        end if;
    end if;
    update postdate.frontier set window_to = greatest(ends, window_to);
    return cardinality(ids_) = most;
end $$;

-- Looks for what may be handed over next, due from `soonest` on and within the window, within rows and bytes. The transaction then holds the frontier, the fence
-- is moved, and batch_arrived.sql reads what `snapshot` shows of that and writes it down. No row: there is nothing; what was passed is to be committed. A row of
-- nulls: another gateway is claiming just now.
create function postdate.claim_arrived(soonest timestamptz, rows_max integer, bytes_max bigint,
                                       out lane "char", out from_born xid8, out to_born xid8, out from_id uuid, out to_id uuid, out snapshot pg_snapshot) returns setof record
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    f postdate.frontier;
    first_id uuid := greatest(postdate.id_floor(soonest), (select c.to_id from postdate.closed c where c.one = 1));
    near_id uuid := postdate.id_floor(soonest - interval '1 day'); -- what is due before was passed long ago
    one postdate.arriving;
    total bigint;
    n integer;
    is_full boolean;
    last_born xid8;
    p record;
begin
    select * into f from postdate.frontier x where x.one = 1;
    perform from postdate.message m
      where m.hold = 'b' and m.next_at is null and m.born > f.arrived and m.id > near_id and m.id <= f.window_to limit 1;
    if not found then
        perform from postdate.arriving a where pg_visible_in_snapshot(a.born, pg_current_snapshot());
        if not found then return; end if;
    end if;
    -- A gateway that stands still in the middle of a claim is not waited for longer.
    perform set_config('idle_in_transaction_session_timeout', '1s', true);
    select * into f from postdate.frontier x where x.one = 1 for update skip locked;
    if not found then
        return next;
        return;
    end if;
    snapshot := pg_current_snapshot();
    first_id := greatest(first_id, f.to_id);
    for i in 1 .. 2 loop
        -- One transaction, or a piece of it.
        for one in select * from postdate.arriving a where pg_visible_in_snapshot(a.born, snapshot) order by a.born loop
            from_id := greatest(first_id, one.after_id);
            to_id := null;
            total := 0;
            n := 0;
            is_full := false;
            for p in select m.id, postdate.size_to_claim(m.body, m.properties, m.properties_json) as size
                       from postdate.message m
                      where m.hold = 'b' and m.next_at is null and m.born = one.born and m.id > from_id and m.id <= f.window_to
                      order by m.id limit rows_max + 1
            loop
                is_full := n = rows_max or n > 0 and total + p.size > bytes_max;
                exit when is_full;
                to_id := p.id;
                n := n + 1;
                total := total + p.size;
            end loop;
            if is_full then
                update postdate.arriving a set after_id = claim_arrived.to_id where a.born = one.born;
            else
                delete from postdate.arriving a where a.born = one.born;
            end if;
            if to_id is not null then
                lane := 'p';
                from_born := (one.born::text::bigint - 1)::text::xid8;
                to_born := one.born;
                return next;
                return;
            end if;
        end loop;
        -- Whole transactions, one after the other.
        to_born := null;
        last_born := null;
        total := 0;
        n := 0;
        is_full := false;
        for p in select m.born, postdate.size_to_claim(m.body, m.properties, m.properties_json) as size
                   from postdate.message m
                  where m.hold = 'b' and m.next_at is null and m.born > f.arrived and m.id > first_id and m.id <= f.window_to and pg_visible_in_snapshot(m.born, snapshot)
                  order by m.born limit rows_max + 1
        loop
            if p.born is distinct from last_born then
                to_born := last_born;
                last_born := p.born;
            end if;
            n := n + 1;
            total := total + p.size;
            is_full := n > rows_max or total > bytes_max;
            exit when is_full;
        end loop;
        lane := case when is_full and to_born is null then 'p' else 'b' end;
        if not is_full then -- past what is due too soon, too: else each look would read it again
            to_born := greatest(last_born, (select m.born from postdate.message m
                                             where m.hold = 'b' and m.next_at is null and m.born > f.arrived and m.id > near_id and m.id <= f.window_to
                                               and pg_visible_in_snapshot(m.born, snapshot)
                                             order by m.born desc limit 1));
            exit when to_born is null;
        elsif to_born is null then
            to_born := last_born;
        end if;
        -- Before the rows are read: who cancels from now on goes by it.
        if (select x.last_value from postdate.arrival_fence x) < to_born::text::bigint then perform setval('postdate.arrival_fence', to_born::text::bigint); end if;
        insert into postdate.arriving (born)
        select x from pg_snapshot_xip(snapshot) x where x > f.arrived and x < to_born union all select to_born where lane = 'p';
        update postdate.frontier set arrived = to_born;
        exit when n = 0;
        if lane = 'b' then
            from_born := f.arrived;
            from_id := first_id;
            to_id := f.window_to;
            return next;
            return;
        end if;
        f.arrived := to_born; -- that one is too large: a piece of it
    end loop;
end $$;

-- What RabbitMQ has had, was due before that, and is not settled, is lost: it gets a next_at, in doubt. Some at a time; returns whether there may be more.
create function postdate.handed_close(before timestamptz, most integer) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    begins uuid;
    ends uuid;
    most_ends uuid;
    open_ uuid;
    lost uuid[];
    locked uuid[];
    n bigint;
begin
    -- Not past the other lane: what is closed it would take for new.
    select least(postdate.id_floor(before), f.to_id) into ends from postdate.frontier f where f.one = 1;
    select c.to_id into begins from postdate.closed c where c.one = 1 and c.to_id < ends for update skip locked;
    if not found then return false; end if;
    -- Nor past what is on its way to RabbitMQ.
    select least(postdate.id_before(b.pending[1]), coalesce(b.upto, b.from_id)) into open_ from postdate.batch b where b.lane <> 'g' and not b.done order by 1 limit 1;
    ends := least(ends, open_);
    if ends <= begins then return false; end if;
    -- Not too much at once; but past what RabbitMQ never had.
    most_ends := postdate.id_floor(postdate.id_due(begins) + interval '10 min');
    if most_ends < ends then
        most_ends := greatest(most_ends, coalesce((select b.from_id from postdate.batch b where b.lane <> 'g' order by b.from_id limit 1), ends));
        ends := least(ends, most_ends);
    end if;
    lost := array(select m.id from postdate.message m
                   where m.hold = 'b' and m.next_at is null and m.id > begins and m.id <= ends and postdate.handover_owner(m.id, m.born) = -1
                   order by m.id limit most);
    n := cardinality(lost);
    if n = most then ends := lost[most]; end if;
    if n > 0 then
        locked := array(select m.id from postdate.message m where m.id = any (lost) and m.next_at is null order by m.id for update skip locked);
        update postdate.message m set next_at = m.due, state = 'claimed', attempts = 1 where m.id = any (locked) and m.next_at is null;
        lost := array(select m.id from postdate.message m where m.id = any (lost) and m.id <> all (locked) and m.next_at is null);
        if lost <> '{}' then
            insert into postdate.late (batch, from_id, to_id, ids, doubt) values (0, begins, ends, lost, true);
        end if;
    end if;
    update postdate.closed set to_id = ends;
    delete from postdate.batch b where b.lane <> 'g' and b.done and b.to_id <= ends;
    return n = most or coalesce(ends = most_ends, false);
end $$;
