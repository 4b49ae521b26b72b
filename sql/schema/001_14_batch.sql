-- Claims that write nothing into the rows they take (docs/internals/store.md).
--
-- A row is PLAIN while its next_at is null: it is due once, at `due`, and nothing about it was ever written again. A claim takes a range of plain rows in
-- the order of their ids and writes one row here; settling moves that row's `upto`. Whatever does not go through at once leaves the range: its own row is
-- written, with a next_at, and from then on it is claimed, settled and looked up by its own columns.

-- Milliseconds since 1970. A plain row due up to here may be claimed now: who wants to cancel or change it comes too late, and who stores one stores it with
-- a next_at. A sequence, for it is read and written outside snapshots: a claim moves it before it reads, a transaction that stores reads it after it has its
-- id, one that cancels after it has locked the row.
create sequence postdate.fence minvalue 0 start 0;
select setval('postdate.fence', floor(extract(epoch from now()) * 1000)::bigint);

-- All plain rows up to here belong to some claim, but those that its transaction could not see.
create table postdate.frontier (
    one   smallint primary key default 1 check (one = 1), -- no boolean: the planner knows that it is one row
    to_id uuid not null
);
insert into postdate.frontier (to_id) values (postdate.id_ceiling(now()));

-- The claims: plain rows after from_id and up to to_id that the snapshot shows, but those skipped. Of these, up to `upto` are delivered, but those pending;
-- all, once it is done. Ranges do not overlap and leave no gap. One that was put back is nobody's (owner 0): of what is left of it nothing was begun, and any
-- gateway takes it again, under another claimed_at.
create table postdate.batch (
    id         bigint generated always as identity primary key,
    claimed_at timestamptz not null default date_trunc('milliseconds', clock_timestamp()), -- ids come again where a standby that had not heard of one takes over
    owner      integer not null,
    from_id    uuid not null,
    to_id      uuid not null,
    upto       uuid,
    settled_at timestamptz,                 -- of the last one, or so far
    done       boolean not null default false,
    snapshot   pg_snapshot not null,
    skipped    uuid[] not null default '{}', -- somebody had them locked
    pending    uuid[] not null default '{}', -- up to `upto`, in order: in flight still, or refused while somebody has their row locked
    again_at   timestamptz,                  -- it was put back, and is to be taken again from then on
    back_since timestamptz                   -- its target has stood still since then: it was put back for that, once or several times
) with (fillfactor = 70);
create unique index batch_range on postdate.batch (to_id);
create index batch_open on postdate.batch (to_id) where not done;
create index batch_again on postdate.batch (again_at) where again_at is not null;

-- Ranges in which plain rows may still appear that their claim could not see: of transactions that had their id before the fence was moved. First all
-- transactions are waited for that began before a later one of our own (late_mark); what runs still is remembered by name, so that an unrelated one of an hour
-- delays nothing. ids: found, and to be given a next_at as soon as nobody has them locked.
create table postdate.late (
    id       bigint generated always as identity primary key,
    batch    bigint not null,         -- whose range it is
    from_id  uuid not null,
    to_id    uuid not null,
    snapshot pg_snapshot,             -- null: it was looked at, but for what `waiting` stores
    waiting  xid8[] not null default '{}',
    ids      uuid[] not null default '{}',
    long     boolean not null default false -- it may have more rows than one claim takes
) with (fillfactor = 50);
create table postdate.late_mark (
    one   boolean primary key default true check (one),
    upto  bigint not null default 0,  -- batches: all transactions that could have read the fence of these …
    below xid8 not null default '3'   -- … have an id below this
) with (fillfactor = 50);
insert into postdate.late_mark default values;

-- The fence, read as who stores must: after its transaction has an id.
create function postdate.fence_for_store() returns bigint language plpgsql volatile as $$
declare
    own xid8 := pg_current_xact_id();
begin
    return (select last_value from postdate.fence);
end $$;

-- What the next_at of a new row is: null for a plain one. Not immutable, so that it is inlined.
create function postdate.next_at_of(due timestamptz, hold "char", fence bigint) returns timestamptz language sql stable as $$
    select case when hold = 'b' or extract(epoch from due) * 1000 <= fence then due end
$$;

-- Lets the frontier pass ids up to here without reading them, for somebody has their day locked: what is plain is opened when it can be read. False: it was
-- not moved.
create function postdate.claim_pass(ends uuid) returns boolean language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    begins uuid;
    batch_id bigint;
begin
    select f.to_id into begins from postdate.frontier f where f.one = 1 and f.to_id < ends for update skip locked;
    if not found then return false; end if;
    if (select last_value from postdate.fence) < postdate.id_ms(ends) then perform setval('postdate.fence', postdate.id_ms(ends)); end if;
    -- no snapshot shows them: all of them are late
    update postdate.batch set id = default, to_id = ends where to_id = begins and owner = 0 and done returning id into batch_id;
    if not found then
        insert into postdate.batch (owner, from_id, to_id, snapshot, done) values (0, begins, ends, '1:1:', true) returning id into batch_id;
    end if;
    insert into postdate.late (batch, from_id, to_id, snapshot, long) values (batch_id, begins, ends, '1:1:', true);
    update postdate.frontier set to_id = ends;
    return true;
end $$;

-- Looks for what can be claimed next: plain rows that are due up to the horizon, a range from the frontier on, within rows and bytes (at least one row).
-- The transaction then holds the frontier, the fence is moved, and batch_claim.sql reads the range and writes it down, in one statement and with a snapshot that
-- is younger than that. No row: there is nothing; what was passed is to be committed. A row of nulls: another gateway is claiming just now.
-- locked_from, locked_to: days that somebody has locked, ascending. It touches none of them: a range goes up to the first one, and passes that when nothing is left before it.
create function postdate.claim_next(horizon timestamptz, rows_max integer, bytes_max bigint, locked_from timestamptz[] default '{}', locked_to timestamptz[] default '{}',
                                    out begins uuid, out ends uuid) returns setof record
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$ -- of much that is due only the beginning is read
declare
    top uuid;  -- an id is a constant to the planner, and days are pruned by it
    past uuid := postdate.id_floor(horizon - interval '2 s');
    total bigint;
    locked record;
begin
    loop
        select f.to_id into begins from postdate.frontier f where f.one = 1;
        -- id_floor of a day's end lies in the next one: a frontier there leaves the locked one out of the plan
        select d.day_begins, d.day_ends into locked from unnest(locked_from, locked_to) d (day_begins, day_ends)
         where d.day_begins <= horizon and postdate.id_floor(d.day_ends) > begins order by d.day_begins limit 1;
        top := postdate.id_ceiling(coalesce(locked.day_begins - interval '1 ms', horizon));
        perform from postdate.message m where m.id > begins and m.id <= top and m.next_at is null order by m.id limit 1;
        exit when found;
        if locked.day_ends is not null then
            if not postdate.claim_pass(least(postdate.id_floor(locked.day_ends), postdate.id_ceiling(horizon))) then return; end if;
            continue;
        end if;
        -- Not long behind, where little is plain: days are kept until they are behind it. Nor behind much that is not plain: each look reads it.
        if postdate.id_due(begins) < horizon - interval '1 hour' then
            perform postdate.claim_pass(postdate.id_ceiling(horizon - interval '30 min'));
        elsif (select count(*) from (select from postdate.message m where m.id > begins and m.id <= past order by m.id limit 1000) x) = 1000 then
            perform postdate.claim_pass(postdate.id_ceiling(horizon - interval '2 s'));
        end if;
        return;
    end loop;
    -- A gateway that stands still in the middle of a claim is not waited for longer.
    perform set_config('idle_in_transaction_session_timeout', '1s', true);
    select f.to_id into begins from postdate.frontier f where f.one = 1 for update skip locked;
    if not found then
        return next;
        return;
    end if;
    loop -- until they fit
        select (array_agg(p.id))[count(*)], sum(p.size) into ends, total
          from (select m.id, octet_length(m.body) + octet_length(m.properties)
                       + case when pg_column_compression(m.properties_json) is null then coalesce(pg_column_size(m.properties_json), 0)
                              else octet_length(m.properties_json::text) end as size
                  from postdate.message m
                 where m.id > begins and m.id <= top and m.next_at is null
                 order by m.id limit rows_max) p;
        exit when rows_max = 1 or total <= bytes_max;
        rows_max := greatest(rows_max * bytes_max / total, 1);
    end loop;
    if ends is null then return; end if;
    -- Before the rows are read: what is stored or cancelled from now on goes by it.
    if (select last_value from postdate.fence) < postdate.id_ms(ends) then perform setval('postdate.fence', postdate.id_ms(ends)); end if;
    return next;
end $$;

-- Gives those of the ids a next_at that nobody has locked, or lets them wait for a slot of their rate; returns the others.
create function postdate.late_open(wanted uuid[]) returns uuid[] language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set enable_seqscan = off as $$
declare
    locked uuid[];
begin
    if wanted = '{}' then return wanted; end if;
    locked := array(select m.id from postdate.message m where m.id = any (wanted) and m.next_at is null order by m.id for update skip locked);
    update postdate.message m
       set (next_at, rate) = (
               select case when x.rate is null then m.due else 'infinity' end, x.rate
                 from (select case when (select exists (select from postdate.rate r where not r.removed)) then postdate.rate_of(m.exchange, m.routing_key) end as rate offset 0) x)
     where m.id = any (locked) and m.next_at is null;
    return array(select m.id from postdate.message m where m.id = any (wanted) and m.next_at is null);
end $$;

-- A range that may have many rows is looked at in pieces: cuts off what is too much for one, and returns where the piece ends.
create function postdate.late_cut(e postdate.late, most integer) returns uuid language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    ends uuid;
begin
    if not e.long then return e.to_id; end if;
    select m.id into ends from postdate.message m
     where m.id > e.from_id and m.id <= e.to_id
     order by m.id offset most limit 1;
    if not found then return e.to_id; end if;
    insert into postdate.late (batch, from_id, to_id, snapshot, waiting, long) values (e.batch, ends, e.to_id, e.snapshot, e.waiting, true);
    return ends;
end $$;

-- Looks after what claims could not see or not take: called a few times a second by some gateway; returns how many rows it has opened, to be claimed by their
-- next_at. locked_from, locked_to: days that somebody has locked, for which nothing waits; most: rows of one range that are read at once.
create function postdate.late_look(locked_from timestamptz[], locked_to timestamptz[], most integer default 5000) returns integer language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    mark postdate.late_mark;
    running pg_snapshot;
    e postdate.late;
    ended xid8[];
    found_ uuid[];
    stays uuid[];
    opened integer := 0;
    in_vain integer := 0;
    newest bigint;
    oldest xid8;
begin
    -- Before this transaction has an id, or the mark that it makes of its id would not be later than the claims that it marks.
    select max(l.batch) into newest from postdate.late l where pg_current_xact_id_if_assigned() is null;
    if newest is null then return 0; end if;
    select * into mark from postdate.late_mark for update skip locked;
    if not found then return 0; end if;
    running := pg_current_snapshot();
    -- Only what may get on: of a crowd that somebody has locked some are tried, the smallest first, mostly, for it must not take the claims' time.
    for e in
        select * from postdate.late l
         where not exists (select from unnest(locked_from, locked_to) d (begins, ends) where d.begins <= postdate.id_due(l.to_id) and d.ends > postdate.id_due(l.from_id))
           and case when l.snapshot is not null then l.batch <= mark.upto
                    else l.ids <> '{}' or exists (select from unnest(l.waiting) x where pg_visible_in_snapshot(x, running)) end
         order by random() * cardinality(l.ids), l.from_id limit 300
    loop
        exit when in_vain >= 500 or opened >= 1000; -- each of them is written
        select * into e from postdate.late l where l.id = e.id; -- a neighbour may have become part of it
        found_ := '{}';
        if e.snapshot is not null then
            e.to_id := postdate.late_cut(e, most);
            oldest := pg_snapshot_xmin(e.snapshot); -- for most rows that is enough
            found_ := array(select m.id from postdate.message m
                             where m.id > e.from_id and m.id <= e.to_id
                               and m.next_at is null and m.born >= oldest and not pg_visible_in_snapshot(m.born, e.snapshot));
            e.waiting := array(select x from pg_snapshot_xip(running) x where x < mark.below);
            e.snapshot := null;
        else
            ended := array(select x from unnest(e.waiting) x where pg_visible_in_snapshot(x, running));
            if ended <> '{}' then
                e.to_id := postdate.late_cut(e, most);
                found_ := array(select m.id from postdate.message m
                                 where m.id > e.from_id and m.id <= e.to_id
                                   and m.next_at is null and m.born = any (ended));
                e.waiting := array(select x from unnest(e.waiting) x where x <> all (ended));
            end if;
        end if;
        e.ids := array(select distinct i from unnest(e.ids || found_) i);
        stays := postdate.late_open(e.ids[:1000]) || e.ids[1001:];
        opened := opened + cardinality(e.ids) - cardinality(stays);
        in_vain := in_vain + cardinality(stays);
        if e.waiting = '{}' and stays = '{}' then
            delete from postdate.late l where l.id = e.id;
            continue;
        end if;
        -- Neighbours that wait for the same are one.
        update postdate.late l set to_id = e.to_id, ids = l.ids || stays, long = true
         where l.to_id = e.from_id and l.snapshot is null and l.waiting = e.waiting and cardinality(l.ids) + cardinality(stays) <= 1000;
        if found then
            delete from postdate.late l where l.id = e.id;
        else
            update postdate.late l set snapshot = null, waiting = e.waiting, ids = stays, to_id = e.to_id where l.id = e.id;
        end if;
    end loop;
    if newest > mark.upto then update postdate.late_mark set upto = newest, below = pg_current_xact_id(); end if;
    return opened;
end $$;

-- Writes down how far batches of an instance are settled, and what is pending before that, of whichever of them. ends: 0 it goes on; 1 all of it is done; 2 the rest
-- is put back, to be taken again at once; 3 likewise, but its target stands still: the later, the longer it has. Those of an
-- instance that others took for dead are left alone, and so is what the database has forgotten: returns these batches. No row of a message is touched, so nobody's lock is in the way. It sets no search_path, which costs as much
-- as the rest: each name and type is exactly one of pg_catalog.
create function postdate.batch_settle(ids bigint[], uptos uuid[], ends integer[], instance_id integer, pending_of bigint[], pending_ids uuid[], claimed timestamptz[])
returns bigint[] language plpgsql set plan_cache_mode = auto set enable_seqscan = off as $$
declare
    missed bigint[] := '{}';
begin
    -- What is said to be delivered up to a row must not be forgotten, for rows before it may have been settled by themselves meanwhile.
    perform set_config('synchronous_commit', 'on', true);
    for i in 1 .. cardinality(ids) loop
        update postdate.batch b
           set upto = uptos[i], done = ends[i] = 1, settled_at = clock_timestamp(),
               pending = array(select p.id from unnest(pending_of, pending_ids) p (batch, id) where p.batch = ids[i] order by p.id),
               owner = case when ends[i] >= 2 then 0 else b.owner end,
               again_at = case ends[i] when 2 then clock_timestamp()
                                       when 3 then clock_timestamp() + least(greatest((clock_timestamp() - b.back_since) * 3, interval '1 s'), interval '1 min') end,
               back_since = case when ends[i] = 3 then coalesce(b.back_since, clock_timestamp()) else b.back_since end
         where b.id = ids[i] and b.claimed_at = claimed[i] and b.owner = instance_id and not b.done;
        if not found then missed := missed || ids[i]; end if;
    end loop;
    return missed;
end $$;

-- The first rows that are left of a batch, `most` at most and those pending.
create function postdate.batch_left(b postdate.batch, most integer) returns uuid[]
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    ids_ uuid[];
begin
    ids_ := array(select m.id from postdate.message m
                   where m.id > coalesce(b.upto, b.from_id) and m.id <= b.to_id and m.next_at is null
                     and pg_visible_in_snapshot(m.born, b.snapshot) and m.id <> all (b.skipped)
                   order by m.id limit most);
    if b.pending <> '{}' then -- of an empty list no day is pruned
        ids_ := array(select m.id from postdate.message m where m.id = any (b.pending) and m.next_at is null order by m.id) || ids_;
    end if;
    return ids_;
end $$;

-- A batch whose target has stood still for a minute: some of its rows get a next_at, so that they can be cancelled. Returns how many. What somebody has locked, and
-- days that somebody has, are left for the next time.
create function postdate.batch_scatter(locked_from timestamptz[], locked_to timestamptz[], most integer) returns integer
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    b postdate.batch;
    ids_ uuid[];
    locked uuid[];
begin
    select * into b from postdate.batch x
     where x.again_at <= clock_timestamp() and x.back_since < clock_timestamp() - interval '1 min'
       and not exists (select from unnest(locked_from, locked_to) d (begins, ends)
                        where d.begins <= postdate.id_due(x.to_id) and d.ends > postdate.id_due(least(x.pending[1], coalesce(x.upto, x.from_id))))
     order by x.again_at limit 1 for update skip locked;
    if not found then return 0; end if;
    ids_ := postdate.batch_left(b, most);
    locked := array(select m.id from postdate.message m where m.id = any (ids_[:most]) and m.next_at is null order by m.id for update skip locked);
    update postdate.message m
       set next_at = clock_timestamp() + interval '1 min' + random() * interval '1 min',
           error = 'RabbitMQ has not confirmed an earlier message to this exchange and routing key'
     where m.id = any (locked) and m.next_at is null;
    if cardinality(ids_) < most and cardinality(locked) = cardinality(ids_) then
        update postdate.batch x set done = true, again_at = null, settled_at = clock_timestamp() where x.id = b.id;
    elsif locked = '{}' then
        update postdate.batch x set again_at = clock_timestamp() + interval '1 s' where x.id = b.id;
    end if;
    return cardinality(locked);
end $$;

-- Claims of an instance that is gone, or of one that gives them up, wait again: rows that were not delivered get a next_at, in doubt; what was put back is not its
-- any more. Some at a time: true, if there may be more. What somebody has locked, and days that somebody has, are left for the next time, and hold up no other claim.
create function postdate.batch_release(instance_id integer, locked_from timestamptz[], locked_to timestamptz[], most integer) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    b postdate.batch;
    ids_ uuid[];
    locked uuid[];
begin
    for b in
        select * from postdate.batch x
         where not x.done and x.again_at is null and (x.owner = instance_id or instance_id is null and not exists (select from postdate.instance i where i.id = x.owner))
           and not exists (select from unnest(locked_from, locked_to) d (begins, ends)
                            where d.begins <= postdate.id_due(x.to_id) and d.ends > postdate.id_due(least(x.pending[1], coalesce(x.upto, x.from_id))))
         order by x.id for update skip locked
    loop
        ids_ := postdate.batch_left(b, most);
        locked := array(select m.id from postdate.message m where m.id = any (ids_) and m.next_at is null order by m.id for update skip locked);
        update postdate.message m set state = 'claimed', next_at = m.due where m.id = any (locked) and m.next_at is null;
        if cardinality(ids_) < most and cardinality(locked) = cardinality(ids_) then
            update postdate.batch x set done = true, settled_at = clock_timestamp() where x.id = b.id;
            return true;
        end if;
        if locked <> '{}' then return true; end if;
    end loop;
    return false;
end $$;

-- After a dump was restored somewhere, where ids of transactions begin anew: whatever the dump has was committed, and before anything that is to come. No gateway
-- may run. What claims had taken is left to their release, which goes by ids and snapshots of then.
create function postdate.batch_restored() returns void language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off as $$ -- what is restored has no statistics
begin
    update postdate.message m set next_at = m.due
      from postdate.late l
     where m.id > l.from_id and m.id <= l.to_id and m.next_at is null
       and (m.id = any (l.ids) or m.born = any (l.waiting) or not pg_visible_in_snapshot(m.born, l.snapshot));
    delete from postdate.late;
    -- logical replication copies no sequence: what is stored plain is due after the frontier
    perform setval('postdate.fence', greatest(s.last_value, postdate.id_ms(f.to_id))) from postdate.fence s, postdate.frontier f;
    update postdate.late_mark set upto = coalesce((select max(b.id) from postdate.batch b), 0), below = '3';
    update postdate.message m set born = '3' from postdate.frontier f where m.id > f.to_id and m.next_at is null;
end $$;
