-- Version 16, part 2 of 3: recurring schedules. The next occurrence of a schedule is an ordinary message; the row of postdate.message that
-- names its schedule carries it on: who claims that row makes the next one in the same transaction (postdate.recur_claim). So there is
-- no leader, none comes twice, and none is forgotten. Whoever changes a schedule locks its row here first, then the message's.

alter table postdate.message add column recur bigint;          -- the schedule that this row carries on; null from the claim on
alter table postdate.message add column late_at timestamptz;   -- not claimed after this: it was missed (postdate.recur_look)
do $$
declare
    loose text;
begin
    -- Days whose detach was interrupted must still fit when they are attached again.
    for loose in
        select c.relname from pg_class c
         where c.relnamespace = 'postdate'::regnamespace and c.relkind = 'r' and c.relname ~ '^message_[0-9]{8}$'
           and not exists (select from pg_inherits i where i.inhrelid = c.oid)
    loop
        execute format('alter table postdate.%I add column if not exists recur bigint, add column if not exists late_at timestamptz', loose);
    end loop;
end $$;

create table postdate.recur (
    id           bigint generated always as identity primary key,
    name         text not null unique,
    cron         text not null,
    zone         text not null,
    plan         postdate.cron_plan not null,  -- cron, parsed
    anchor       timestamptz not null,         -- what @every counts from
    exchange     text not null,
    routing_key  text not null,
    body         bytea not null,
    content      jsonb not null,               -- {"headers":…,"properties":…}, as in postdate.message.properties_json
    missed       text not null check (missed in ('one', 'all', 'none')),
    grace        interval not null,
    jitter       interval not null,
    dst          text not null check (dst in ('run', 'skip')),
    overlap      text not null check (overlap in ('allow', 'skip')),
    from_at      timestamptz,
    until_at     timestamptz,
    paused       boolean not null default false,
    nominal      timestamptz,                  -- of the next occurrence; null: there is none any more
    skipped      integer not null default 0,   -- occurrences that were left out before it
    message      uuid,                         -- the row that carries it; null: paused, ended, or too far ahead for a row
    last_nominal timestamptz,                  -- of the last one that was let go …
    last         uuid,                         -- … and its message
    look_at      timestamptz,                  -- when somebody has to see to it (postdate.recur_look)
    error        text,                         -- why the next one could not be made
    created_at   timestamptz not null default clock_timestamp(),
    changed_at   timestamptz not null default clock_timestamp(),
    changed_by   text not null default session_user
);
create index recur_look on postdate.recur (look_at) where look_at is not null;

-- Jitter is the same whoever computes it, whenever.
create function postdate.recur_due(name text, jitter interval, nominal timestamptz) returns timestamptz language sql immutable as $$
    select case when jitter = '0' then nominal
                else nominal + ((hashtextextended(name || '@' || date_part('epoch', nominal), 0) & 2147483647)
                                % greatest((date_part('epoch', jitter) * 1000)::bigint, 1)) * interval '1 millisecond' end
$$;

create function postdate.recur_after(r postdate.recur, after timestamptz) returns timestamptz language plpgsql stable as $$
declare
    n timestamptz := postdate.cron_next(r.plan, r.zone, case when r.from_at > after then r.from_at - interval '1 microsecond' else after end, r.anchor, r.dst = 'run');
begin
    return case when n > r.until_at then null else n end;
end $$;

-- One occurrence as a message. The one that carries the schedule on takes the key, unless somebody has that locked just now: a
-- caller's open transaction must not hold up a claim.
create function postdate.recur_insert(r postdate.recur, nominal timestamptz, now_at timestamptz, skipped integer, carries boolean) returns uuid
language plpgsql as $$
declare
    want timestamptz := postdate.recur_due(r.name, r.jitter, nominal);
    at timestamptz := postdate.due_round(want, now_at);
    row_id uuid := postdate.id_make(at);
begin
    insert into postdate.message (due, next_at, created_at, id, hold, exchange, routing_key, key, properties, properties_json, body, recur, late_at)
    values (at, at, now_at, row_id, 'g', r.exchange, r.routing_key, 'recur/' || r.name, '',
            jsonb_set(r.content, '{headers}', r.content -> 'headers' || jsonb_build_object('x-postdate-recur', r.name,
                'x-postdate-nominal', (date_part('epoch', nominal) * 1000)::bigint)
                || case when skipped > 0 then jsonb_build_object('x-postdate-missed', skipped) else '{}' end),
            r.body, case when carries then r.id end, case when carries then want + r.grace end);
    if carries then
        update postdate.key k set due = at, id = row_id
          from (select x.exchange, x.key from postdate.key x where x.exchange = r.exchange and x.key = 'recur/' || r.name for update skip locked) f
         where k.exchange = f.exchange and k.key = f.key;
    end if;
    return row_id;
end $$;

-- Not for claims: who inserts the same key waits for the other.
create function postdate.recur_key(r postdate.recur) returns void language sql as $$
    insert into postdate.key (exchange, key, due, id) values (r.exchange, 'recur/' || r.name, clock_timestamp(), gen_random_uuid()) on conflict do nothing
$$;

-- Which from `pending` on were missed: those that are later than grace (or, of one that was paused, due at all). The last hundred are
-- named; how many is counted to a hundred, and then it says "at least".
create function postdate.recur_pass(r postdate.recur, pending timestamptz, now_at timestamptz, grace interval, out next timestamptz, out missed timestamptz[], out count integer)
language plpgsql stable as $$
declare
    span interval := '1 minute';
    walked timestamptz[];
    hundred timestamptz;
begin
    next := pending;
    missed := '{}';
    count := 0;
    while next is not null and count < 100 and postdate.recur_due(r.name, r.jitter, next) + grace < now_at loop
        missed := missed || next;
        count := count + 1;
        next := postdate.recur_after(r, next);
    end loop;
    hundred := next;
    while next is not null and postdate.recur_due(r.name, r.jitter, next) + grace < now_at loop
        -- more than a hundred: from near the end, further back until there are enough
        count := 101;
        next := greatest(hundred, postdate.recur_after(r, now_at - grace - r.jitter - span));
        exit when next is null;
        walked := '{}';
        while next is not null and cardinality(walked) < 5000 and postdate.recur_due(r.name, r.jitter, next) + grace < now_at loop
            walked := walked || next;
            next := postdate.recur_after(r, next);
        end loop;
        exit when cardinality(walked) >= 100 or now_at - grace - r.jitter - span < hundred;
        next := hundred;
        span := span * 4;
    end loop;
    if cardinality(walked) > 0 then missed := (missed || walked)[cardinality(missed) + cardinality(walked) - 99:]; end if;
end $$;

-- The schedule goes on with `pending`, or with what follows when that was missed. The caller has its row locked.
create function postdate.recur_step(r postdate.recur, pending timestamptz, now_at timestamptz, grace interval, left_out integer) returns text
language plpgsql as $$
declare
    s record;
    p record;
    made integer := 0;
    first_ integer;
    row_id uuid;
    due_at timestamptz;
    too_far boolean;
begin
    p := postdate.recur_pass(r, pending, now_at, grace);
    if p.count > 0 and r.missed <> 'none' then
        first_ := case when r.missed = 'all' and r.overlap = 'allow' then 1 else cardinality(p.missed) end;
        made := cardinality(p.missed) - first_ + 1;
        for i in first_..cardinality(p.missed) loop
            r.last := postdate.recur_insert(r, p.missed[i], now_at, case when i = first_ then least(case when p.count > 100 then 100 else left_out + p.count - made end, 100) else 0 end, false);
        end loop;
        r.last_nominal := p.missed[cardinality(p.missed)];
        left_out := 0;
    else
        left_out := least(left_out + p.count, 100);
    end if;
    due_at := postdate.recur_due(r.name, r.jitter, p.next);
    select x.max_delay_ms, x.wake_ms into s from postdate.settings x;
    too_far := due_at > now_at + s.max_delay_ms * interval '1 millisecond';
    if p.next is not null and not too_far then row_id := postdate.recur_insert(r, p.next, now_at, left_out, true); end if;
    update postdate.recur x
       set nominal = p.next, skipped = left_out, message = row_id, last = r.last, last_nominal = r.last_nominal, error = null,
           look_at = case when p.next is null then null when too_far then due_at - s.max_delay_ms * interval '0.5 millisecond'
                          else least(due_at + r.grace, greatest(due_at, now_at) + interval '30 s') end
     where x.id = r.id;
    if made > 0 or due_at < now_at + s.wake_ms * interval '1 millisecond' then perform pg_notify('postdate_wake', ''); end if;
    return case when p.count > 0 then 'recur ' || r.name || ': ' || case when p.count > 100 then 'more than 100' else p.count::text end
        || ' missed since ' || pending || ', ' || made || ' of them made up for' end;
end $$;

-- Is the occurrence before still waiting here: not delivered, or refused and to come back, or dead?
create function postdate.recur_waits(id uuid) returns boolean language plpgsql set plan_cache_mode = force_custom_plan as $$
begin
    return exists (select from postdate.message m where m.due = postdate.id_due(recur_waits.id) and m.id = recur_waits.id and m.settled_at is null)
        or exists (select from postdate.lineage l where l.id = recur_waits.id and (l.died_at is not null or exists (
                select from postdate.message m where m.due = postdate.id_due(l.message) and m.id = l.message and m.settled_at is null)));
end $$;

create function postdate.recur_leave_out(carrier uuid, now_at timestamptz) returns void
language sql set plan_cache_mode = force_custom_plan as $$
    update postdate.message m
       set state = 'cancelled', settled_at = now_at, body = '', properties = '', properties_json = null, recur = null, late_at = null,
           error = 'left out: the occurrence before is not done yet'
     where m.due = postdate.id_due(carrier) and m.id = carrier;
$$;

create function postdate.recur_claim_one(r postdate.recur, carrier uuid) returns boolean language plpgsql as $$
declare
    now_at timestamptz := clock_timestamp();
begin
    if r.message is distinct from carrier then return true; end if;
    if r.overlap = 'skip' and r.last is not null and postdate.recur_waits(r.last) then
        perform postdate.recur_leave_out(carrier, now_at);
        perform postdate.recur_step(r, postdate.recur_after(r, r.nominal), now_at, r.grace, r.skipped + 1);
        return false;
    end if;
    r.last := carrier;
    r.last_nominal := r.nominal;
    perform postdate.recur_step(r, postdate.recur_after(r, r.nominal), now_at, r.grace, 0);
    return true;
end $$;

-- For a claim: makes the next occurrences of those that it is about to take. Returns those that must not be taken: they were left out,
-- or their schedule is being changed. (plan_cache_mode: sessions of the programs plan each statement anew, each expression of a function,
-- too, and the next time would take many times as long to find.) Never fails and never waits: what cannot be made now is made by postdate.recur_look.
create function postdate.recur_claim(schedules bigint[], ids uuid[]) returns uuid[]
language plpgsql strict set plan_cache_mode = auto as $$
declare
    held uuid[];
    r postdate.recur;
    carrier uuid;
begin
    begin
        held := array(select i from unnest(schedules, ids) u (s, i) where exists (select from postdate.recur x where x.id = u.s));
        for r in select x.* from postdate.recur x where x.id = any (schedules) order by x.id for update skip locked loop
            carrier := ids[array_position(schedules, r.id)];
            if postdate.recur_claim_one(r, carrier) then held := array_remove(held, carrier); end if;
        end loop;
        return held;
    exception when others then
        if sqlstate in ('55P03', '40P01') then return '{}'; end if; -- a lock: of the next day, say
    end;
    held := '{}';
    for r in select x.* from postdate.recur x where x.id = any (schedules) order by x.id for update skip locked loop
        begin
            carrier := ids[array_position(schedules, r.id)];
            if not postdate.recur_claim_one(r, carrier) then held := held || carrier; end if;
        exception when others then
            update postdate.recur x set error = left(sqlerrm, 500), look_at = clock_timestamp() + interval '1 minute' where x.id = r.id;
        end;
    end loop;
    return held;
end $$;

-- The row that carries a schedule stops doing so. Not `due` yet: it is never delivered. Due already: delivered, as it was.
create function postdate.recur_let_go(r postdate.recur, now_at timestamptz) returns void
language plpgsql set plan_cache_mode = force_custom_plan as $$
begin
    if r.message is null then return; end if;
    if r.nominal <= now_at then
        update postdate.message m set recur = null, late_at = null
         where m.due = postdate.id_due(r.message) and m.id = r.message and m.state = 'scheduled' and m.owner is null and m.late_at >= now_at;
        if found then return; end if;
    end if;
    update postdate.message m
       set state = 'superseded', settled_at = clock_timestamp(), body = '', properties = '', properties_json = null, error = null, recur = null, late_at = null
     where m.due = postdate.id_due(r.message) and m.id = r.message and m.state = 'scheduled' and m.owner is null and m.recur = r.id;
end $$;

-- Does the row still carry the schedule on? 'waits', 'locked' (somebody is about to take it), 'gone'.
create function postdate.recur_carrier(id uuid, schedule bigint, out standing text, out late_at timestamptz)
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    m record;
begin
    standing := 'gone';
    if id is null then return; end if;
    select x.state, x.owner, x.recur, x.late_at into m from postdate.message x
     where x.due = postdate.id_due(recur_carrier.id) and x.id = recur_carrier.id for update skip locked;
    if found and m.recur = schedule and m.state = 'scheduled' and m.owner is null then
        standing := 'waits';
        late_at := m.late_at;
    elsif not found and exists (select from postdate.message x where x.due = postdate.id_due(recur_carrier.id) and x.id = recur_carrier.id) then
        standing := 'locked';
    end if;
end $$;

-- The safety net, for the janitors: schedules whose occurrence was missed, or that nothing carries on. A row for each that it saw to, with
-- something for the log, perhaps.
create function postdate.recur_look(most integer) returns setof text
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = auto as $$
declare
    r postdate.recur;
    m record;
    now_at timestamptz := clock_timestamp();
begin
    for r in select x.* from postdate.recur x where x.look_at <= now_at order by x.look_at limit most for update skip locked loop
        begin
            m := postdate.recur_carrier(r.message, r.id);
            if m.standing = 'locked' then
                update postdate.recur x set look_at = now_at + interval '10 s' where x.id = r.id; -- somebody is about to take it
                return next null;
                continue;
            end if;
            if m.standing = 'waits' and m.late_at >= now_at then
                update postdate.recur x set look_at = greatest(m.late_at, now_at + interval '1 s') where x.id = r.id;
                return next null;
                continue;
            end if;
            perform postdate.recur_key(r);
            if m.standing = 'waits' then
                perform postdate.recur_let_go(r, '-infinity');
                return next postdate.recur_step(r, r.nominal, now_at, r.grace, r.skipped);
            elsif r.message is not null then
                r.last := r.message;
                r.last_nominal := r.nominal;
                return next coalesce(postdate.recur_step(r, postdate.recur_after(r, r.nominal), now_at, r.grace, 0),
                    'recur ' || r.name || ': nothing carried it on, made its next occurrence');
            else
                return next postdate.recur_step(r, r.nominal, now_at, r.grace, r.skipped);
            end if;
        exception when others then
            update postdate.recur x set error = left(sqlerrm, 500), look_at = now_at + interval '1 minute' where x.id = r.id and x.error is distinct from left(sqlerrm, 500);
            if found then return next 'recur ' || r.name || ': cannot make its next occurrence: ' || sqlerrm;
            else update postdate.recur x set look_at = now_at + interval '1 minute' where x.id = r.id; end if;
        end;
    end loop;
end $$;

-- Its occurrence was cancelled or moved by hand: the schedule goes on. If somebody has it locked, he sees to it.
create function postdate.recur_skip(schedule bigint, carrier uuid) returns void language plpgsql as $$
declare
    r postdate.recur;
begin
    select x.* into r from postdate.recur x where x.id = schedule and x.message = carrier for update skip locked;
    if found then perform postdate.recur_step(r, postdate.recur_after(r, r.nominal), clock_timestamp(), r.grace, 0); end if;
end $$;

create function postdate.recur_check(r postdate.recur) returns void language plpgsql as $$
begin
    if r.name is null or r.name !~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$' then
        perform postdate.refuse('recur: the name is not allowed', 'It is ' || postdate.shown(r.name) || '.', 'Allowed are 1 to 200 letters, digits, dots, dashes and underscores.');
    elsif r.missed is null or r.missed not in ('one', 'all', 'none') then
        perform postdate.refuse('recur: missed is unknown', 'It is ' || postdate.shown(r.missed) || '.', 'Allowed are one, all, none.');
    elsif r.dst is null or r.dst not in ('run', 'skip') then
        perform postdate.refuse('recur: dst is unknown', 'It is ' || postdate.shown(r.dst) || '.', 'Allowed are run, skip.');
    elsif r.overlap is null or r.overlap not in ('allow', 'skip') then
        perform postdate.refuse('recur: overlap is unknown', 'It is ' || postdate.shown(r.overlap) || '.', 'Allowed are allow, skip.');
    elsif r.grace is null or r.grace < '0' or r.grace > '7 days' then
        perform postdate.refuse('recur: grace is out of range', 'It is ' || postdate.shown(r.grace::text) || '.', 'Allowed are 0 to 7 days.');
    elsif r.jitter is null or r.jitter < '0' or r.jitter > '1 day' then
        perform postdate.refuse('recur: jitter is out of range', 'It is ' || postdate.shown(r.jitter::text) || '.', 'Allowed are 0 to 1 day.');
    elsif r.until_at <= r.from_at then
        perform postdate.refuse('recur: it ends before it begins', 'from is ' || r.from_at || ', until is ' || r.until_at || '.', 'until must be later than from.');
    end if;
end $$;

-- Makes the schedule or changes it; returns its next nominal time. A change counts from now on.
create function postdate.recur_put(r postdate.recur, body_kind "char", headers jsonb, properties jsonb) returns timestamptz language plpgsql as $$
declare
    s postdate.settings;
    d postdate.draft;
    old postdate.recur;
    now_at timestamptz;
    upcoming timestamptz;
begin
    select * into strict s from postdate.settings;
    perform postdate.recur_check(r);
    r.plan := postdate.cron_parse(r.cron);
    r.zone := postdate.zone_check(coalesce(r.zone, 'UTC'));
    r.cron := btrim(regexp_replace(r.cron, '\s+', ' ', 'g'));
    now_at := clock_timestamp();
    d := postdate.draft_make(s, now_at, r.routing_key, r.body, body_kind, now_at, r.exchange, coalesce(headers, '{}'), properties, null, 'keep', 'gateway');
    r.exchange := d.exchange;
    r.content := d.properties_json;
    r.anchor := coalesce(r.from_at, date_trunc('second', now_at));
    insert into postdate.recur as x (name, cron, zone, plan, anchor, exchange, routing_key, body, content, missed, grace, jitter, dst, overlap, from_at, until_at)
    values (r.name, r.cron, r.zone, r.plan, r.anchor, r.exchange, r.routing_key, r.body, r.content, r.missed, r.grace, r.jitter, r.dst, r.overlap, r.from_at, r.until_at)
    on conflict on constraint recur_name_key do nothing
    returning x.* into old;
    if old.id is null then
        select x.* into strict old from postdate.recur x where x.name = r.name for update;
        if (old.cron, old.zone, old.exchange, old.routing_key, old.body, old.content, old.missed, old.grace, old.jitter, old.dst, old.overlap, old.from_at, old.until_at)
           is not distinct from (r.cron, r.zone, r.exchange, r.routing_key, r.body, r.content, r.missed, r.grace, r.jitter, r.dst, r.overlap, r.from_at, r.until_at) then
            return old.nominal;
        end if;
        now_at := clock_timestamp(); -- whoever had it locked has let its occurrences go by now
        perform postdate.recur_let_go(old, now_at);
        update postdate.recur x
           set cron = r.cron, zone = r.zone, plan = r.plan, exchange = r.exchange, routing_key = r.routing_key, body = r.body, content = r.content,
               missed = r.missed, grace = r.grace, jitter = r.jitter, dst = r.dst, overlap = r.overlap, from_at = r.from_at, until_at = r.until_at,
               anchor = case when x.cron = r.cron and x.from_at is not distinct from r.from_at then x.anchor else r.anchor end,
               last = case when old.nominal <= now_at then coalesce(old.message, x.last) else x.last end,
               changed_at = now_at, changed_by = session_user, message = null
         where x.id = old.id
        returning x.* into old;
    end if;
    perform postdate.recur_key(old);
    upcoming := postdate.recur_after(old, greatest(now_at, old.last_nominal));
    if upcoming is null then
        perform postdate.refuse('recur: it would never run', 'until is ' || coalesce(old.until_at::text, 'not given') || '.', 'Set until later than its first occurrence.');
    end if;
    if old.paused then
        update postdate.recur x set nominal = upcoming, skipped = 0, look_at = null where x.id = old.id;
    else
        perform postdate.recur_step(old, upcoming, now_at, old.grace, 0);
    end if;
    perform postdate.commit_durably();
    return upcoming;
end $$;

create function postdate.recur_row(name text, cron text, zone text, exchange text, routing_key text, body bytea, missed text, grace interval, jitter interval,
    dst text, overlap text, from_at timestamptz, until_at timestamptz) returns postdate.recur language plpgsql immutable as $$
declare
    r postdate.recur;
begin
    r.name := name; r.cron := cron; r.zone := zone; r.exchange := exchange; r.routing_key := routing_key; r.body := body; r.missed := missed;
    r.grace := grace; r.jitter := date_trunc('milliseconds', jitter); r.dst := dst; r.overlap := overlap;
    r.from_at := date_trunc('milliseconds', from_at); r.until_at := until_at;
    return r;
end $$;

do $$
declare
    kind text;
begin
    foreach kind in array '{text,bytea,json,jsonb}'::text[] loop
        execute format($f$
create function postdate.recur_set(name text, cron text, routing_key text, body %1$s, zone text default 'UTC', exchange text default null,
    headers jsonb default null, properties jsonb default null, missed text default 'one', grace interval default '1 minute', jitter interval default '0',
    dst text default 'run', overlap text default 'allow', from_at timestamptz default null, until_at timestamptz default null)
returns timestamptz language plpgsql security definer set search_path = pg_catalog, pg_temp as $b$
begin
    return postdate.recur_put(postdate.recur_row(name, cron, zone, exchange, routing_key, %2$s, missed, grace, jitter, dst, overlap, from_at, until_at),
                              %3$L, headers, properties);
end $b$ $f$, kind, case kind when 'bytea' then 'body' when 'text' then $e$convert_to(body, 'UTF8')$e$ else $e$convert_to(body::text, 'UTF8')$e$ end,
            case when kind in ('json', 'jsonb') then 'j' else 't' end);
    end loop;
end $$;

create function postdate.recur_pause(name text) returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    r postdate.recur;
begin
    select x.* into r from postdate.recur x where x.name = recur_pause.name for update;
    if not found then return false; end if;
    if r.paused then return true; end if;
    perform postdate.recur_let_go(r, '-infinity');
    update postdate.recur x set paused = true, message = null, look_at = null, changed_at = clock_timestamp(), changed_by = session_user where x.id = r.id;
    perform postdate.commit_durably();
    return true;
end $$;

-- What was due meanwhile counts as missed.
create function postdate.recur_resume(name text) returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    r postdate.recur;
begin
    update postdate.recur x set paused = false, changed_at = clock_timestamp(), changed_by = session_user
     where x.name = recur_resume.name and x.paused returning x.* into r;
    if not found then return exists (select from postdate.recur x where x.name = recur_resume.name); end if;
    if r.nominal is not null then
        perform postdate.recur_key(r);
        perform postdate.recur_step(r, r.nominal, clock_timestamp(), '0', r.skipped);
    end if;
    perform postdate.commit_durably();
    return true;
end $$;

create function postdate.recur_remove(name text) returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    r postdate.recur;
begin
    select x.* into r from postdate.recur x where x.name = recur_remove.name for update;
    if not found then return false; end if;
    perform postdate.recur_let_go(r, '-infinity');
    delete from postdate.recur x where x.id = r.id;
    perform postdate.commit_durably();
    return true;
end $$;

-- One occurrence more, at once; the others stay as they are. Null: there is no such schedule.
create function postdate.recur_run(name text) returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    r postdate.recur;
    now_at timestamptz := date_trunc('milliseconds', clock_timestamp());
    row_id uuid;
begin
    select x.* into r from postdate.recur x where x.name = recur_run.name;
    if not found then return null; end if;
    r.jitter := '0';
    row_id := postdate.recur_insert(r, now_at, clock_timestamp(), 0, false);
    perform postdate.commit_durably();
    perform pg_notify('postdate_wake', '');
    return row_id;
end $$;

-- What a zone was like when its next occurrences were computed. A session keeps a zone as it read it first: sessions that began after
-- tzdata was updated see the new rules.
create table postdate.recur_zone (
    zone    text primary key,
    from_at timestamptz not null,
    mark    text not null
);

-- Every hour of 400 days: 7 ms.
create function postdate.zone_print(zone text, from_at timestamptz) returns text language sql stable as $$
    select md5(string_agg((t at time zone zone)::text, ' ')) from generate_series(from_at, from_at + interval '400 days', interval '1 hour') t
$$;

-- Computed anew by the rules as they are now. A fixed time is looked for from some hours before: it may have moved to earlier.
create function postdate.recur_anew(r postdate.recur, now_at timestamptz) returns boolean language plpgsql as $$
declare
    upcoming timestamptz := postdate.recur_after(r, greatest(r.last_nominal, case when (r.plan).wild then now_at else r.nominal - interval '3 hours' end));
begin
    if upcoming is not distinct from r.nominal then return false; end if;
    perform postdate.recur_let_go(r, '-infinity');
    perform postdate.recur_step(r, upcoming, now_at, r.grace, r.skipped);
    return true;
end $$;

-- For the janitors: has a zone changed since its schedules were computed? Returns what is worth a line in the log.
create function postdate.recur_zones() returns setof text language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = auto as $$
declare
    z record;
    r postdate.recur;
    now_at timestamptz := clock_timestamp();
    changed integer;
begin
    for z in select d.zone, k.from_at, k.mark from (select distinct x.zone from postdate.recur x) d left join postdate.recur_zone k on k.zone = d.zone loop
        continue when z.mark = postdate.zone_print(z.zone, z.from_at) and z.from_at > now_at - interval '200 days';
        changed := 0;
        for r in select x.* from postdate.recur x
                  where x.zone = z.zone and z.mark is not null and (x.plan).every_s is null and not x.paused and x.nominal > now_at for update skip locked loop
            changed := changed + postdate.recur_anew(r, now_at)::integer;
        end loop;
        insert into postdate.recur_zone as k (zone, from_at, mark) values (z.zone, date_trunc('day', now_at, 'UTC'), postdate.zone_print(z.zone, date_trunc('day', now_at, 'UTC')))
            on conflict on constraint recur_zone_pkey do update set from_at = excluded.from_at, mark = excluded.mark;
        if changed > 0 then return next 'recur: the rules of ' || z.zone || ' have changed: ' || changed || ' next occurrences computed anew'; end if;
    end loop;
end $$;
