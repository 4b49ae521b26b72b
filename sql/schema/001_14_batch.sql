-- Claims that write nothing into the rows they take (docs/internals/store.md).
--
-- A row is PLAIN while its next_at is null: it is due at `due`, and was not written since it was stored. A claim takes a range of plain rows in the order of their
-- ids and writes one row here; settling moves that row's `upto`. A message that is not delivered at once leaves the range: its own row is written, with a next_at,
-- and from then on it is claimed, settled and looked up by its own columns.

-- The fence, in milliseconds since 1970. A plain row due up to here may be claimed now: it is too late to cancel or change it, and a new row due before is stored
-- with a next_at. It is a sequence, because it must be read and written outside snapshots: a claim moves it before it reads; a transaction that stores reads it
-- after it has its id, one that cancels after it has locked the row.
create sequence postdate.fence minvalue 0 start 0;
select setval('postdate.fence', floor(extract(epoch from now()) * 1000)::bigint);

-- The claims: plain rows after from_id and up to to_id that the snapshot shows, except those skipped. Those up to the claim's position are delivered, except those
-- pending; all, once it is done. Ranges do not overlap and leave no gap. A claim that was put back has no owner (0): none of its remaining rows was begun, and any
-- gateway claims it again, with a new claimed_at. The last one ends where the next claim begins (postdate.frontier). The row is written when the claim is made, put
-- back and done; changes in between are in batch_position, so that the snapshot, with its list of transactions, is not written each time.
create table postdate.batch (
    id         bigint generated always as identity primary key,
    claimed_at timestamptz not null default date_trunc('milliseconds', clock_timestamp()), -- after a fail-over, a standby that does not have an id uses it again
    owner      integer not null,
    from_id    uuid not null,
    to_id      uuid not null,
    settled_at timestamptz,                 -- of the last message; null: not done, or nothing to deliver
    done       boolean not null default false,
    snapshot   pg_snapshot,                 -- null: all plain rows are delivered (batch_merge)
    skipped    uuid[] not null default '{}', -- they were locked
    again_at   timestamptz,                 -- it was put back, and may be claimed again from then on
    back_since timestamptz                  -- its destination has hung since then: it was put back for that, once or several times
);
create unique index batch_range on postdate.batch (to_id);
create index batch_open on postdate.batch (to_id) where not done;
create index batch_again on postdate.batch (again_at) where again_at is not null;
insert into postdate.batch (owner, from_id, to_id, done) values (0, postdate.id_ceiling(now()), postdate.id_ceiling(now()), true);

-- The positions of claims that are not done.
create table postdate.batch_position (
    batch      bigint primary key,
    settled_at timestamptz not null,        -- of the last message so far
    upto       uuid not null,
    pending    uuid[] not null default '{}' -- up to `upto`, in order: still in flight, or rejected while their row is locked
) with (fillfactor = 50);

-- The frontier: all plain rows up to here belong to a claim, except those that its transaction could not see. A session that moves it has locked the row `claims` of
-- postdate.gate. It is read from the newest claim: a row of its own would have a version for each claim as long as an old snapshot is held, and each reader would
-- pass all of them.
create view postdate.frontier as select (select b.to_id from postdate.batch b order by b.to_id desc limit 1) as to_id;

-- Milliseconds since 1970. All plain rows due before this were delivered when it was set (late_look), and stay so. Searches for open claims begin here, because dead
-- index entries of finished claims stay as long as an old snapshot is held. A sequence has no versions. A too low value is harmless.
create sequence postdate.settled minvalue 0 start 0;
create function postdate.settled_floor() returns uuid language sql stable set search_path = pg_catalog, pg_temp as $$
    select (lpad(to_hex(s.last_value), 12, '0') || '00000000000000000000')::uuid from postdate.settled s
$$;

-- The claims that are not done, and their positions.
create view postdate.batch_now as
select b.id, b.claimed_at, b.owner, b.from_id, b.to_id, coalesce(b.settled_at, p.settled_at) as settled_at, b.snapshot, b.skipped, p.upto, coalesce(p.pending, '{}') as pending
  from postdate.batch b left join postdate.batch_position p on p.batch = b.id
 where not b.done and b.to_id > (select postdate.settled_floor());

-- Late rows: plain rows that a claim of their range could not see, because their transactions had their ids before the fence was moved. First, late_look waits for
-- transactions that began before a later one of its own (`below`); those that still run are recorded by id, so that an unrelated transaction of an hour delays
-- nothing, and their rows are searched when they end. One row: each change writes a new one with a greater id, and the greatest is found without passing the others.
create table postdate.late_mark (
    id      bigint generated always as identity primary key,
    looked  uuid not null,                 -- ranges up to here were checked, except for rows of `running`
    upto    uuid not null,                 -- all transactions that could have read the fence of claims up to here …
    below   xid8 not null default '3',     -- … have an id below this
    running xid8[] not null default '{}',  -- of these: still running when a range was checked …
    since   uuid[] not null default '{}'   -- … after this id, each
);
insert into postdate.late_mark (looked, upto) select f.to_id, f.to_id from postdate.frontier f;

-- Late rows that were set aside: locked rows, or ranges of locked days.
create table postdate.late (
    id      bigint generated always as identity primary key,
    from_id uuid not null,
    to_id   uuid not null,
    ids     uuid[]                         -- rows that get a next_at; null: the range was not checked
) with (fillfactor = 50);
create index late_range on postdate.late (from_id);

-- The fence for a transaction that stores: read after the transaction has an id.
create function postdate.fence_for_store() returns bigint language plpgsql volatile as $$
declare
    own xid8 := pg_current_xact_id();
begin
    return (select last_value from postdate.fence);
end $$;

-- The next_at of a new row: null for a plain one. Not immutable, so that it is inlined.
create function postdate.next_at_of(due timestamptz, hold "char", fence bigint) returns timestamptz language sql stable as $$
    select case when hold = 'b' or extract(epoch from due) * 1000 <= fence then due end
$$;

-- Moves the frontier past ids up to here without reading them, because their day is locked: plain rows are opened when they can be read. False: it was not moved.
create function postdate.claim_pass(ends uuid) returns boolean language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    begins uuid;
begin
    perform from postdate.gate g where g.name = 'claims' for update skip locked;
    if not found then return false; end if;
    select f.to_id into begins from postdate.frontier f;
    if begins >= ends then return false; end if;
    if (select last_value from postdate.fence) < postdate.id_ms(ends) then perform setval('postdate.fence', postdate.id_ms(ends)); end if;
    -- no snapshot shows them: all of them are late
    insert into postdate.batch (owner, from_id, to_id, snapshot, done) values (0, begins, ends, '1:1:', true);
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
    past uuid := postdate.id_ceiling(horizon);
    total bigint;
    locked record;
begin
    loop
        select f.to_id into begins from postdate.frontier f;
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
            perform postdate.claim_pass(past);
        end if;
        return;
    end loop;
    -- A gateway that stands still in the middle of a claim is not waited for longer.
    perform set_config('idle_in_transaction_session_timeout', '1s', true);
    perform from postdate.gate g where g.name = 'claims' for update skip locked;
    if not found then
        begins := null;
        return next;
        return;
    end if;
    select f.to_id into begins from postdate.frontier f;
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

-- The next_at of what waits for a slot: when its deadline has passed, for nothing but the claim that ends it goes by time then. Not immutable, so that it is inlined.
create function postdate.rate_until(deadline timestamptz) returns timestamptz language sql stable as $$
    select coalesce(deadline + interval '1 ms', 'infinity')
$$;

-- Gives those of the ids a next_at that nobody has locked, or lets them wait for a slot of their rate; returns the others.
create function postdate.late_open(wanted uuid[]) returns uuid[] language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off as $$
declare
    locked uuid[];
begin
    if wanted = '{}' then return wanted; end if;
    locked := array(select m.id from postdate.message m where m.id = any (wanted) and m.next_at is null order by m.id for update skip locked);
    if not exists (select from postdate.rate r where not r.removed) then
        update postdate.message m set next_at = m.due where m.id = any (locked) and m.next_at is null;
    else -- each exchange is asked for its rate once, with each routing key where a rate names one
        with one as materialized (
            select m.id, m.deadline, m.exchange,
                   case when (select exists (select from postdate.rate r where not r.removed and r.routing_key <> '*')) then m.routing_key else '' end as key
              from postdate.message m where m.id = any (locked) and m.next_at is null),
        rated as materialized (
            select p.exchange, p.key, postdate.rate_of(p.exchange, p.key) as rate
              from (select distinct o.exchange, o.key from one o where coalesce(o.deadline >= clock_timestamp(), true)) p)
        update postdate.message m
           set next_at = case when x.rate is null then m.due else postdate.rate_until(m.deadline) end, rate = x.rate
          from (select o.id, case when coalesce(o.deadline >= clock_timestamp(), true) then r.rate end as rate
                  from one o left join rated r on r.exchange = o.exchange and r.key = o.key) x
         where m.id = x.id and m.id = any (locked) and m.next_at is null;
    end if;
    return array(select m.id from postdate.message m where m.id = any (wanted) and m.next_at is null);
end $$;

create function postdate.days_locked(from_id uuid, to_id uuid, locked_from timestamptz[], locked_to timestamptz[]) returns boolean language sql stable as $$
    select exists (select from unnest(locked_from, locked_to) d (begins, ends) where d.begins <= postdate.id_due(to_id) and d.ends > postdate.id_due(from_id))
$$;

-- A range that may have many rows is looked at in pieces: where the first one ends.
create function postdate.late_cut(from_id uuid, to_id uuid, most integer) returns uuid language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
begin
    if postdate.id_ms(to_id) - postdate.id_ms(from_id) <= 5000 then return to_id; end if; -- no more than a claim takes
    return coalesce((select m.id from postdate.message m where m.id > from_id and m.id <= to_id order by m.id offset most limit 1), to_id);
end $$;

-- Plain rows of a range that the claim which has them did not take; born_in: only those that these transactions stored; null: all.
create function postdate.late_find(from_id uuid, to_id uuid, born_in xid8[]) returns uuid[] language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
begin
    return array(select m.id from postdate.message m
                  where m.id > from_id and m.id <= to_id and m.next_at is null and (born_in is null or m.born = any (born_in))
                    and (select not pg_visible_in_snapshot(m.born, b.snapshot) or m.id = any (b.skipped)
                           from postdate.batch b where b.to_id >= m.id order by b.to_id limit 1)
                  order by m.id);
end $$;

-- Where what claims could not see or take may begin: up to here there is none.
create function postdate.late_from() returns uuid language sql stable set search_path = pg_catalog, pg_temp as $$
    select least(k.looked, (select s from unnest(k.since) s order by s limit 1),
                 (select l.from_id from postdate.late l where l.from_id >= postdate.settled_floor() and l.from_id < k.looked order by l.from_id limit 1))
      from (select m.looked, m.since from postdate.late_mark m order by m.id desc limit 1) k
$$;

-- Opens rows that claims could not see or claim: called a few times a second by any gateway; returns how many rows it has opened, to be claimed by their next_at.
-- locked_from, locked_to: locked days, which are left out; most: rows of one range that are read at once.
create function postdate.late_look(locked_from timestamptz[], locked_to timestamptz[], most integer default 5000) returns integer language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off as $$
declare
    was postdate.late_mark;
    mark postdate.late_mark;
    running pg_snapshot;
    newest uuid;
    b record;
    ended xid8[];
    begins uuid;
    reached uuid;
    found_ uuid[];
    stays uuid[];
    opened integer := 0;
    in_vain integer := 0;
begin
    -- Before this transaction has an id, else its id would not be later than the claims that it marks.
    select f.to_id into newest from postdate.frontier f where pg_current_xact_id_if_assigned() is null;
    if newest is null then return 0; end if;
    perform setval('postdate.settled', s.ms) from (select postdate.id_ms(postdate.settled_to()) as ms) s where s.ms > (select last_value from postdate.settled);
    select * into was from postdate.late_mark k order by k.id desc limit 1;
    if was.looked = newest and was.running = '{}' and not exists (select from postdate.late l where l.from_id >= postdate.settled_floor()) then return 0; end if;
    select * into was from postdate.late_mark k order by k.id desc limit 1 for update skip locked;
    if not found then return 0; end if;
    mark := was;
    running := pg_current_snapshot();

    -- Ranges that were not checked yet, in order.
    for b in select x.from_id, x.to_id, x.snapshot, x.skipped from postdate.batch x
              where x.to_id > was.looked and x.to_id <= was.upto order by x.to_id limit 300
    loop
        exit when in_vain >= 500 or opened >= 1000; -- each of them is written
        b.from_id := greatest(b.from_id, mark.looked);
        if postdate.days_locked(b.from_id, b.to_id, locked_from, locked_to) then
            mark.looked := b.to_id;
            update postdate.late l set to_id = b.to_id where l.to_id = b.from_id and l.ids is null and l.from_id >= postdate.settled_floor();
            if not found then insert into postdate.late (from_id, to_id) values (b.from_id, b.to_id); end if;
            continue;
        end if;
        reached := postdate.late_cut(b.from_id, b.to_id, most);
        begins := b.from_id;
        found_ := array(select m.id from postdate.message m
                         where m.id > begins and m.id <= reached and m.next_at is null
                           and m.born >= pg_snapshot_xmin(b.snapshot) and not pg_visible_in_snapshot(m.born, b.snapshot)) -- for most rows the first is enough
                  || array(select i from unnest(b.skipped) i where i > begins and i <= reached);
        stays := postdate.late_open(found_[:1000]) || found_[1001:];
        if stays <> '{}' then insert into postdate.late (from_id, to_id, ids) values (begins, reached, stays); end if;
        opened := opened + cardinality(found_) - cardinality(stays);
        in_vain := in_vain + cardinality(stays);
        mark.looked := reached;
        exit when reached < b.to_id;
    end loop;
    if mark.looked > was.looked then
        select mark.running || array_agg(x), mark.since || array_agg(was.looked) into mark.running, mark.since
          from pg_snapshot_xip(running) x where x < was.below and x <> all (was.running) having count(*) > 0;
        if not found then
            mark.running := was.running;
            mark.since := was.since;
        end if;
    end if;

    -- Rows of transactions that have ended, in ranges that were checked before.
    ended := array(select x from unnest(was.running) x where pg_visible_in_snapshot(x, running));
    if ended <> '{}' and opened < 1000 then
        begins := (select s from unnest(was.running, was.since) r (x, s) where r.x = any (ended) order by s limit 1);
        reached := was.looked;
        if begins < reached and postdate.days_locked(begins, reached, locked_from, locked_to) then
            insert into postdate.late (from_id, to_id) values (begins, reached);
        elsif begins < reached then
            reached := postdate.late_cut(begins, reached, most);
            found_ := postdate.late_find(begins, reached, ended);
            stays := postdate.late_open(found_[:1000]) || found_[1001:];
            if stays <> '{}' then insert into postdate.late (from_id, to_id, ids) values (begins, reached, stays); end if;
            opened := opened + cardinality(found_) - cardinality(stays);
        end if;
        select coalesce(array_agg(r.x), '{}'), coalesce(array_agg(case when r.x = any (ended) then greatest(r.s, reached) else r.s end), '{}')
          into mark.running, mark.since
          from unnest(mark.running, mark.since) r (x, s) where r.x <> all (ended) or reached < was.looked;
    end if;

    -- Rows and ranges that were set aside. If many are locked, some are tried, mostly the smallest first, to leave time for claims.
    for b in select * from postdate.late l
              where l.from_id >= postdate.settled_floor() and not postdate.days_locked(l.from_id, l.to_id, locked_from, locked_to)
              order by random() * coalesce(cardinality(l.ids), 0), l.from_id limit 300
    loop
        exit when in_vain >= 500 or opened >= 1000;
        reached := case when b.ids is null then postdate.late_cut(b.from_id, b.to_id, most) else b.to_id end;
        found_ := case when b.ids is null then postdate.late_find(b.from_id, reached, null) else b.ids end;
        stays := postdate.late_open(found_[:1000]) || found_[1001:];
        opened := opened + cardinality(found_) - cardinality(stays);
        in_vain := in_vain + cardinality(stays);
        if reached < b.to_id then
            if stays <> '{}' then insert into postdate.late (from_id, to_id, ids) values (b.from_id, reached, stays); end if;
            update postdate.late l set from_id = reached where l.id = b.id;
        elsif stays = '{}' then
            delete from postdate.late l where l.id = b.id;
        elsif stays is distinct from b.ids then
            update postdate.late l set ids = stays where l.id = b.id;
        end if;
    end loop;

    if newest > mark.upto then
        mark.upto := newest;
        mark.below := pg_current_xact_id();
    end if;
    if mark is distinct from was then
        update postdate.late_mark k
           set id = default, looked = mark.looked, upto = mark.upto, below = mark.below, running = mark.running, since = mark.since
         where k.id = was.id;
    end if;
    return opened;
end $$;

-- Records how far batches of an instance are settled, and the pending messages before that, of any of them. ends: 0: it continues; 1: all is done; 2: the rest is
-- put back, to be claimed again at once; 3: likewise, but its destination hangs: after a delay that grows with the time for which it has. Batches of an instance
-- that was taken over, and batches that the database has lost, are skipped and returned. No row of a message is changed, so no lock can block it. It sets no
-- search_path, which costs as much as the rest: each name and type is exactly one of pg_catalog.
create function postdate.batch_settle(ids bigint[], uptos uuid[], ends integer[], instance_id integer, pending_of bigint[], pending_ids uuid[], claimed timestamptz[])
returns bigint[] language plpgsql set plan_cache_mode = auto set enable_seqscan = off as $$
declare
    missed bigint[] := '{}';
begin
    -- A recorded position must not be lost, because rows before it may have been settled by themselves meanwhile.
    perform set_config('synchronous_commit', 'on', true);
    for i in 1 .. cardinality(ids) loop
        if ends[i] = 1 then
            update postdate.batch b set done = true, settled_at = clock_timestamp()
             where b.id = ids[i] and b.claimed_at = claimed[i] and b.owner = instance_id and not b.done;
            if found then
                delete from postdate.batch_position p where p.batch = ids[i];
            else
                missed := missed || ids[i];
            end if;
            continue;
        end if;
        insert into postdate.batch_position (batch, settled_at, upto, pending)
        select b.id, clock_timestamp(), uptos[i], array(select p.id from unnest(pending_of, pending_ids) p (batch, id) where p.batch = ids[i] order by p.id)
          from postdate.batch b where b.id = ids[i] and b.claimed_at = claimed[i] and b.owner = instance_id and not b.done
            on conflict (batch) do update set settled_at = excluded.settled_at, upto = excluded.upto, pending = excluded.pending;
        if not found then
            missed := missed || ids[i];
        elsif ends[i] >= 2 then
            update postdate.batch b
               set owner = 0,
                   again_at = case ends[i] when 2 then clock_timestamp()
                                           else clock_timestamp() + least(greatest((clock_timestamp() - b.back_since) * 3, interval '1 s'), interval '1 min') end,
                   back_since = case when ends[i] = 3 then coalesce(b.back_since, clock_timestamp()) else b.back_since end
             where b.id = ids[i] and b.claimed_at = claimed[i] and b.owner = instance_id and not b.done;
        end if;
    end loop;
    return missed;
end $$;

-- The rest of a batch that the caller has locked: its first rows, `most` at most, and those pending.
create function postdate.batch_left(b postdate.batch, most integer) returns uuid[]
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    p postdate.batch_position;
    ids_ uuid[];
begin
    select * into p from postdate.batch_position x where x.batch = b.id;
    ids_ := array(select m.id from postdate.message m
                   where m.id > coalesce(p.upto, b.from_id) and m.id <= b.to_id and m.next_at is null
                     and pg_visible_in_snapshot(m.born, b.snapshot) and m.id <> all (b.skipped)
                   order by m.id limit most);
    if p.pending <> '{}' then -- of an empty list no day is pruned
        ids_ := array(select m.id from postdate.message m where m.id = any (p.pending) and m.next_at is null order by m.id) || ids_;
    end if;
    return ids_;
end $$;

-- A range that was put back and is due again, or within the given time, becomes the claim of an instance: its name, the first and last id that may be left of it,
-- and the position up to which all except pending rows are delivered. No row: there is none, or its days are locked.
create function postdate.batch_again(instance_id integer, locked_from timestamptz[], locked_to timestamptz[], ahead_ms integer,
                                     out id bigint, out claimed_at timestamptz, out first_id uuid, out last_id uuid, out upto uuid) returns setof record
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    b postdate.batch;
    p postdate.batch_position;
begin
    select * into b from postdate.batch x
     where x.again_at <= clock_timestamp() + ahead_ms * interval '1 ms' and exists (select from postdate.instance i where i.id = instance_id)
       and not postdate.days_locked(x.from_id, x.to_id, locked_from, locked_to)
     order by x.again_at limit 1 for update skip locked;
    if not found then return; end if;
    select * into p from postdate.batch_position x where x.batch = b.id; -- after the lock
    id := b.id;
    claimed_at := greatest(date_trunc('milliseconds', clock_timestamp()), b.claimed_at + interval '1 ms');
    upto := coalesce(p.upto, b.from_id);
    first_id := least(p.pending[1], upto);
    last_id := b.to_id;
    update postdate.batch x set owner = instance_id, again_at = null, claimed_at = batch_again.claimed_at where x.id = b.id;
    return next;
end $$;

-- For a batch whose destination has hung for a minute: sets next_at of some of its rows, so that they can be cancelled. Returns how many. Locked rows and days are
-- left for the next call.
create function postdate.batch_scatter(locked_from timestamptz[], locked_to timestamptz[], most integer) returns integer
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    b postdate.batch;
    ids_ uuid[];
    locked uuid[];
begin
    select * into b from postdate.batch x
     where x.again_at <= clock_timestamp() and x.back_since < clock_timestamp() - interval '1 min'
       and not postdate.days_locked(x.from_id, x.to_id, locked_from, locked_to)
     order by x.again_at limit 1 for update skip locked;
    if not found then return 0; end if;
    ids_ := postdate.batch_left(b, most + 1); -- one more shows whether rows are left: a range without any must not be claimed again
    locked := array(select m.id from postdate.message m where m.id = any (ids_[:most]) and m.next_at is null order by m.id for update skip locked);
    update postdate.message m
       set next_at = clock_timestamp() + interval '1 min' + random() * interval '1 min',
           error = 'RabbitMQ has not confirmed an earlier message to this exchange and routing key'
     where m.id = any (locked) and m.next_at is null;
    if cardinality(ids_) <= most and cardinality(locked) = cardinality(ids_) then
        update postdate.batch x set done = true, again_at = null, settled_at = clock_timestamp() where x.id = b.id;
        delete from postdate.batch_position x where x.batch = b.id;
    elsif locked = '{}' then
        update postdate.batch x set again_at = clock_timestamp() + interval '1 s' where x.id = b.id;
    end if;
    return cardinality(locked);
end $$;

-- Releases the claims of an instance that has ended, or that releases them: rows that were not delivered get a next_at, in doubt; ranges that were put back no
-- longer belong to it. Some at a time: true, if there may be more. Locked rows and days are left for the next call, and delay no other claim. Finished claims are
-- not read, however many are kept.
create function postdate.batch_release(instance_id integer, locked_from timestamptz[], locked_to timestamptz[], most integer) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    b postdate.batch;
    ids_ uuid[];
    locked uuid[];
    left_ integer := most;
begin
    for b in
        select * from postdate.batch x
         where not x.done and x.again_at is null and x.to_id > (select postdate.settled_floor())
           and (x.owner = instance_id or instance_id is null and not exists (select from postdate.instance i where i.id = x.owner))
           and not postdate.days_locked(x.from_id, x.to_id, locked_from, locked_to)
         order by x.to_id for update skip locked
    loop
        ids_ := postdate.batch_left(b, left_);
        locked := array(select m.id from postdate.message m where m.id = any (ids_) and m.next_at is null order by m.id for update skip locked);
        update postdate.message m set state = 'claimed', next_at = m.due where m.id = any (locked) and m.next_at is null;
        if cardinality(ids_) < left_ and cardinality(locked) = cardinality(ids_) then
            update postdate.batch x set done = true, settled_at = clock_timestamp() where x.id = b.id;
            delete from postdate.batch_position x where x.batch = b.id;
        end if;
        left_ := left_ - cardinality(locked);
        if left_ <= 0 then return true; end if;
    end loop;
    return false;
end $$;

-- Merges adjacent finished claims before settled_to that were settled in the same second, so that the table does not grow with the number of claims. Called now and
-- then by any gateway. most: how many are read. True: there may be more.
create sequence postdate.merged minvalue 0 start 0; -- ms since 1970: as `settled`
create function postdate.batch_merge(most integer) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    low uuid := (select lpad(to_hex(s.last_value), 12, '0') || '00000000000000000000' from postdate.merged s);
    top uuid := postdate.settled_to();
    b record;
    first_id uuid;          -- the merged claim: from here …
    last_id bigint;         -- … to this one …
    last_to uuid;
    parts bigint[] := '{}'; -- … of these before it
    ends_at timestamptz;
    seen integer := 0;
begin
    perform from postdate.gate g where g.name = 'old claims' for update skip locked;
    if not found then return false; end if;
    for b in
        (select x.id, x.from_id, x.to_id, x.settled_at from postdate.batch x where x.to_id > low and x.to_id <= top order by x.to_id limit most)
         union all select null, null, null, null
    loop
        if b.from_id = last_to and coalesce(date_trunc('second', b.settled_at) = date_trunc('second', ends_at), true) then
            parts := parts || last_id;
        else
            if parts <> '{}' then
                delete from postdate.batch x where x.id = any (parts);
                delete from postdate.batch_position x where x.batch = any (parts);
                update postdate.batch x set from_id = first_id, settled_at = ends_at, snapshot = null, skipped = '{}' where x.id = last_id;
            end if;
            exit when b.id is null;
            parts := '{}';
            first_id := b.from_id;
            ends_at := null;
        end if;
        seen := seen + 1;
        last_id := b.id;
        last_to := b.to_id;
        ends_at := greatest(ends_at, b.settled_at);
    end loop;
    if first_id is not null then perform setval('postdate.merged', postdate.id_ms(first_id)); end if;
    return seen = most;
end $$;

-- After a restored dump, in whose database ids of transactions start again: all rows of the dump were committed, before any later one. No gateway may run. Claimed
-- messages are left to the release of their claims, which uses ids and snapshots of the original.
create function postdate.batch_restored() returns void language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off as $$ -- restored tables have no statistics
declare
    ends uuid := (select f.to_id from postdate.frontier f);
    found_ uuid[] := postdate.late_find(postdate.late_from(), ends, null);
begin
    update postdate.message m set next_at = m.due where m.id = any (found_) and m.next_at is null;
    delete from postdate.late;
    update postdate.late_mark set id = default, looked = ends, upto = ends, below = '3', running = '{}', since = '{}';
    -- logical replication copies no sequences: new plain rows are due after the frontier
    perform setval('postdate.fence', greatest(s.last_value, postdate.id_ms(ends))) from postdate.fence s;
    update postdate.message m set born = '3' where m.id > ends and m.next_at is null;
end $$;
