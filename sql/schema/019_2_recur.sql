-- Version 19, part 2 of 3: recurring schedules. What an occurrence was decided on is noted, so that nothing computes it again; jitter keeps the
-- order; what is locked costs no other schedule its next occurrence; an outcome is known when its message is not kept any more.

alter table postdate.recur
    add column passed timestamptz,   -- up to this nominal time all is decided: let go, missed, left out, cancelled, or before it was set
    add column earliest timestamptz, -- with jitter: when the one before is due. None comes sooner than that
    add column kept uuid,            -- the message whose day has been dropped …
    add column kept_state text,      -- … how it ended …
    add column kept_at timestamptz;  -- … and when
update postdate.recur r
   set passed = least(greatest(r.last_nominal, r.changed_at), r.nominal - interval '1 microsecond');

-- When an occurrence is due: jitter makes none overtake the one before it. So the next one, which is made when the one before is
-- claimed, is never late already by then; it never moves by more than the jitter, for the one before did not either.
create function postdate.recur_at(r postdate.recur, nominal timestamptz) returns timestamptz language plpgsql immutable as $$
begin
    if nominal is null or r.jitter = '0' then return nominal; end if;
    return greatest(postdate.recur_due(r.name, r.jitter, nominal), r.earliest);
end $$;

create or replace function postdate.recur_insert(r postdate.recur, nominal timestamptz, now_at timestamptz, skipped integer, carries boolean) returns uuid
language plpgsql as $$
declare
    want timestamptz := postdate.recur_at(r, nominal);
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

-- As before, but an occurrence is late only `grace` after it could have come (recur_at).
create or replace function postdate.recur_pass(r postdate.recur, pending timestamptz, now_at timestamptz, grace interval, out next timestamptz, out missed timestamptz[], out count integer)
language plpgsql stable as $$
declare
    span interval := '1 minute';
    walked timestamptz[];
    hundred timestamptz;
begin
    next := pending;
    missed := '{}';
    count := 0;
    while next is not null and count < 100 and postdate.recur_at(r, next) + grace < now_at loop
        missed := missed || next;
        count := count + 1;
        next := postdate.recur_after(r, next);
    end loop;
    hundred := next;
    while next is not null and postdate.recur_at(r, next) + grace < now_at loop
        -- more than a hundred: from near the end, further back until there are enough
        count := 101;
        next := greatest(hundred, postdate.recur_after(r, now_at - grace - r.jitter - span));
        exit when next is null;
        walked := '{}';
        while next is not null and cardinality(walked) < 5000 and postdate.recur_at(r, next) + grace < now_at loop
            walked := walked || next;
            next := postdate.recur_after(r, next);
        end loop;
        exit when cardinality(walked) >= 100 or now_at - grace - r.jitter - span < hundred;
        next := hundred;
        span := span * 4;
    end loop;
    if cardinality(walked) > 0 then missed := (missed || walked)[cardinality(missed) + cardinality(walked) - 99:]; end if;
end $$;

-- Is the occurrence before still waiting here: not delivered, failed, or refused and to come back, or dead? It may have been moved.
create or replace function postdate.recur_waits(id uuid) returns boolean language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    latest uuid := postdate.moved_latest(recur_waits.id);
begin
    return exists (select from postdate.message m where m.due = postdate.id_due(latest) and m.id = latest and (m.settled_at is null or m.state = 'failed'))
        or exists (select from postdate.lineage l where l.id in (recur_waits.id, latest) and (l.died_at is not null or exists (
                select from postdate.message m where m.due = postdate.id_due(l.message) and m.id = l.message and (m.settled_at is null or m.state = 'failed'))));
end $$;

-- May rows be stored in the day of this time? Asked only after something was locked in this transaction (recur_claim, recur_look): most
-- locks are short, and waiting for them is better than coming back.
create function postdate.recur_day_open(at timestamptz) returns boolean language plpgsql as $$
begin
    if current_setting('postdate.locked_out', true) is distinct from 'yes' then return true; end if;
    execute format('lock table only postdate.%I in row exclusive mode nowait', 'message_' || to_char(at at time zone 'UTC', 'YYYYMMDD'));
    return true;
exception
    when lock_not_available then return false;
    when undefined_table then return true; -- whoever stores the row says so better
end $$;

-- The schedule goes on with `pending`, or with what follows when that was missed. r.passed is before it. The caller has its row locked.
create or replace function postdate.recur_step(r postdate.recur, pending timestamptz, now_at timestamptz, grace interval, left_out integer) returns text
language plpgsql as $$
declare
    s record;
    p record;
    made integer := 0;
    first_ integer;
    row_id uuid;
    due_at timestamptz;
    too_far boolean;
    closed boolean;
begin
    p := postdate.recur_pass(r, pending, now_at, grace);
    if p.count > 0 then r.passed := p.missed[cardinality(p.missed)]; end if;
    if p.count > 0 and r.missed <> 'none' and not (r.overlap = 'skip' and r.last is not null and postdate.recur_waits(r.last)) then
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
    due_at := postdate.recur_at(r, p.next);
    select x.max_delay_ms, x.wake_ms into s from postdate.settings x;
    too_far := due_at > now_at + s.max_delay_ms * interval '1 millisecond';
    closed := not too_far and not postdate.recur_day_open(postdate.due_round(due_at, now_at));
    if p.next is not null and not too_far and not closed then row_id := postdate.recur_insert(r, p.next, now_at, left_out, true); end if;
    update postdate.recur x
       set nominal = p.next, skipped = left_out, message = row_id, last = r.last, last_nominal = r.last_nominal, passed = r.passed, earliest = r.earliest, error = null,
           look_at = case when p.next is null then null when too_far then due_at - s.max_delay_ms * interval '0.5 millisecond'
                          when closed then now_at + interval '5 s'
                          else least(due_at + r.grace, greatest(due_at, now_at) + interval '30 s') end
     where x.id = r.id;
    if made > 0 or due_at < now_at + s.wake_ms * interval '1 millisecond' then perform pg_notify('postdate_wake', ''); end if;
    return case when p.count > 0 then 'recur ' || r.name || ': ' || case when p.count > 100 then 'more than 100' else p.count::text end
        || ' missed since ' || pending || ', ' || made || ' of them made up for' end;
end $$;

-- --- the claim

create or replace function postdate.recur_claim_one(r postdate.recur, carrier uuid) returns boolean language plpgsql as $$
declare
    now_at timestamptz := clock_timestamp();
begin
    if r.message is distinct from carrier then return true; end if;
    r.passed := r.nominal;
    if r.overlap = 'skip' and r.last is not null and postdate.recur_waits(r.last) then
        perform postdate.recur_leave_out(carrier, now_at);
        perform postdate.recur_step(r, postdate.recur_after(r, r.nominal), now_at, r.grace, r.skipped + 1);
        return false;
    end if;
    r.last := carrier;
    r.last_nominal := r.nominal;
    r.earliest := case when r.jitter <> '0' then postdate.id_due(carrier) end;
    perform postdate.recur_step(r, postdate.recur_after(r, r.nominal), now_at, r.grace, 0);
    return true;
end $$;

-- As before (018_4_recur_batch.sql); jitter keeps the order, and a day that is closed is left to others.
create or replace function postdate.recur_claim_simple(schedules bigint[], ids uuid[]) returns uuid[] language plpgsql
set enable_hashjoin to off set enable_mergejoin to off as $$
declare
    now_at timestamptz := clock_timestamp();
    most interval;
    wake interval;
    done uuid[];
    soonest timestamptz;
    noted text := coalesce(current_setting('postdate.forecast_noted', true), '');
begin
    select x.max_delay_ms * interval '1 millisecond', x.wake_ms * interval '1 millisecond' into most, wake from postdate.settings x;
    -- back to what it was afterwards; an error undoes it
    perform set_config('postdate.forecast_noted', 'yes', true);
    with mine as materialized (
        select x.id, u.carrier, x.nominal as last_nominal, x.name, x.jitter, x.grace, x.exchange, x.until_at,
               case when x.jitter <> '0' then postdate.id_due(u.carrier) end as earliest,
               postdate.cron_next(x.plan, x.zone, case when x.from_at > x.nominal then x.from_at - interval '1 microsecond' else x.nominal end,
                                  x.anchor, x.dst = 'run') as nominal
          from unnest(schedules, ids) u (schedule, carrier) join postdate.recur x on x.id = u.schedule and x.message = u.carrier
         where x.overlap = 'allow'
         order by x.id
           for update of x skip locked),
    wanted as materialized (
        select m.*, greatest(postdate.recur_due(m.name, m.jitter, m.nominal), m.earliest) as want from mine m where m.nominal <= coalesce(m.until_at, 'infinity')),
    timed as materialized (
        select w.*, postdate.due_round(w.want, now_at) as at from wanted w where w.want + w.grace >= now_at and w.want <= now_at + most),
    day as materialized (
        select d.day from (select distinct date_trunc('day', t.at, 'UTC') as day from timed t) d where postdate.recur_day_open(d.day)),
    made as materialized (
        select t.*, postdate.id_make(t.at) as row_id from timed t where date_trunc('day', t.at, 'UTC') = any (array(select d.day from day d))),
    stored as (
        insert into postdate.message (due, next_at, created_at, id, hold, exchange, routing_key, key, properties, properties_json, body, recur, late_at)
        select m.at, m.at, now_at, m.row_id, 'g', x.exchange, x.routing_key, 'recur/' || x.name, '',
               jsonb_set(x.content, '{headers}', x.content -> 'headers' || jsonb_build_object('x-postdate-recur', x.name,
                   'x-postdate-nominal', (date_part('epoch', m.nominal) * 1000)::bigint)),
               x.body, x.id, m.want + x.grace
          from made m join postdate.recur x on x.id = m.id),
    keyed as (
        update postdate.key k set due = f.at, id = f.row_id
          from (select x.exchange, x.key, m.at, m.row_id from made m
                  join postdate.key x on x.exchange = m.exchange and x.key = 'recur/' || m.name for update of x skip locked) f
         where k.exchange = f.exchange and k.key = f.key),
    foreseen as (
        insert into postdate.forecast_change
        select array_agg(c.exchange), array_agg(c.minute), array_agg(c.n)
          from (select m.exchange, floor(extract(epoch from m.at) / 60)::int as minute, count(*)::int as n from made m group by 1, 2) c
        having count(*) > 0),
    carried as (
        update postdate.recur x
           set nominal = m.nominal, skipped = 0, message = m.row_id, last = m.carrier, last_nominal = m.last_nominal, passed = m.last_nominal,
               earliest = m.earliest, error = null, look_at = least(m.want + m.grace, greatest(m.want, now_at) + interval '30 s')
          from made m where x.id = m.id)
    select array_agg(m.carrier), min(m.want) into done, soonest from made m;
    perform set_config('postdate.forecast_noted', noted, true);
    if soonest < now_at + wake then perform pg_notify('postdate_wake', ''); end if;
    return coalesce(done, '{}');
end $$;

-- All of them, and when that fails one by one, so that one schedule's error harms no other. A lock is the caller's.
create or replace function postdate.recur_claim_each(schedules bigint[], ids uuid[]) returns uuid[] language plpgsql strict as $$
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
        if sqlstate in ('55P03', '40P01') then raise; end if;
    end;
    held := '{}';
    for r in select x.* from postdate.recur x where x.id = any (schedules) order by x.id for update skip locked loop
        begin
            carrier := ids[array_position(schedules, r.id)];
            if not postdate.recur_claim_one(r, carrier) then held := held || carrier; end if;
        exception when others then
            if sqlstate in ('55P03', '40P01') then raise; end if;
            update postdate.recur x set error = left(sqlerrm, 500), look_at = clock_timestamp() + interval '1 minute' where x.id = r.id;
        end;
    end loop;
    return held;
end $$;

create function postdate.recur_claim_try(schedules bigint[], ids uuid[]) returns uuid[] language plpgsql as $$
declare
    done uuid[];
begin
    begin
        done := postdate.recur_claim_simple(schedules, ids);
    exception when others then
        if sqlstate in ('55P03', '40P01') then raise; end if;
        done := '{}';
    end;
    if cardinality(done) = cardinality(ids) then return '{}'; end if;
    return (select postdate.recur_claim_each(array_agg(u.s), array_agg(u.i)) from unnest(schedules, ids) u (s, i) where u.i <> all (done));
end $$;

-- For a claim: makes the next occurrences of those that it is about to take. Returns those that must not be taken: they were left out,
-- or their schedule is being changed. Never fails, and waits once at most: where something was locked, days that are locked are gone
-- around. What cannot be made now is the janitor's next task (postdate.recur_look).
create or replace function postdate.recur_claim(schedules bigint[], ids uuid[]) returns uuid[]
language plpgsql strict set plan_cache_mode = auto as $$
declare
    held uuid[];
begin
    for attempt in 1..2 loop
        begin
            held := postdate.recur_claim_try(schedules, ids);
            -- those that were left out are gone now: what waits behind a crowd of them does not wait for the next look
            if cardinality(held) > 100 then perform pg_notify('postdate_wake', ''); end if;
            return held;
        exception when lock_not_available or deadlock_detected then
            perform set_config('postdate.locked_out', 'yes', true);
        end;
    end loop;
    update postdate.recur x set look_at = clock_timestamp()
      from (select f.id from postdate.recur f where f.id = any (schedules) order by f.id for update skip locked) f
     where x.id = f.id;
    return '{}';
exception when others then
    return '{}';
end $$;

-- --- the janitor

-- The row that carries a schedule stops doing so. Not `due` yet: it is never delivered. Due already: delivered, as it was. Is it delivered?
drop function postdate.recur_let_go(postdate.recur, timestamptz);
create function postdate.recur_let_go(r postdate.recur, now_at timestamptz) returns boolean
language plpgsql set plan_cache_mode = force_custom_plan as $$
begin
    if r.message is null then return false; end if;
    if r.nominal <= now_at then
        update postdate.message m set recur = null, late_at = null
         where m.due = postdate.id_due(r.message) and m.id = r.message and m.state = 'scheduled' and m.owner is null and m.late_at >= now_at;
        if found then return true; end if;
    end if;
    update postdate.message m
       set state = 'superseded', settled_at = clock_timestamp(), body = '', properties = '', properties_json = null, error = null, recur = null, late_at = null
     where m.due = postdate.id_due(r.message) and m.id = r.message and m.state = 'scheduled' and m.owner is null and m.recur = r.id;
    if found then return false; end if;
    -- somebody has taken it, and could not carry the schedule on
    return exists (select from postdate.message m where m.due = postdate.id_due(r.message) and m.id = r.message and m.state not in ('cancelled', 'superseded'));
end $$;

-- The occurrence that was next is on its way, or somebody has decided that it is not.
create function postdate.recur_pass_by(r postdate.recur, gone boolean) returns postdate.recur language plpgsql as $$
begin
    r.passed := r.nominal;
    if gone then
        r.last := r.message;
        r.last_nominal := r.nominal;
        r.earliest := case when r.jitter <> '0' then postdate.id_due(r.message) end;
    end if;
    return r;
end $$;

-- One schedule, which is locked. Returns what is worth a line in the log.
create function postdate.recur_look_at(r postdate.recur, now_at timestamptz) returns text language plpgsql as $$
declare
    m record := postdate.recur_carrier(r.message, r.id);
begin
    if m.standing = 'locked' then
        update postdate.recur x set look_at = now_at + interval '10 s' where x.id = r.id; -- somebody is about to take it
        return null;
    elsif m.standing = 'waits' and m.late_at >= now_at then
        update postdate.recur x set look_at = greatest(m.late_at, now_at + interval '1 s') where x.id = r.id;
        return null;
    end if;
    perform postdate.recur_key(r);
    if m.standing = 'waits' then
        perform postdate.recur_let_go(r, '-infinity');
        return postdate.recur_step(r, r.nominal, now_at, r.grace, r.skipped);
    elsif r.message is null then
        return postdate.recur_step(r, r.nominal, now_at, r.grace, r.skipped);
    end if;
    r := postdate.recur_pass_by(r, true);
    return coalesce(postdate.recur_step(r, postdate.recur_after(r, r.nominal), now_at, r.grace, 0),
        'recur ' || r.name || ': nothing carried it on, made its next occurrence');
end $$;

create or replace function postdate.recur_look(most integer) returns setof text
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = auto as $$
declare
    r postdate.recur;
    now_at timestamptz := clock_timestamp();
begin
    for r in select x.* from postdate.recur x where x.look_at <= now_at order by x.look_at limit most for update skip locked loop
        begin
            return next postdate.recur_look_at(r, now_at);
        exception when others then
            if sqlstate in ('55P03', '40P01') then
                perform set_config('postdate.locked_out', 'yes', true); -- the others wait for no locked day
                update postdate.recur x set look_at = now_at + interval '5 s' where x.id = r.id;
                return next null;
                continue;
            end if;
            update postdate.recur x set error = left(sqlerrm, 500), look_at = now_at + interval '1 minute' where x.id = r.id and x.error is distinct from left(sqlerrm, 500);
            if found then return next 'recur ' || r.name || ': cannot make its next occurrence: ' || sqlerrm;
            else update postdate.recur x set look_at = now_at + interval '1 minute' where x.id = r.id; end if;
        end;
    end loop;
end $$;

-- Its occurrence was cancelled or moved by hand: the schedule goes on. What was moved is its last one then. If somebody has it locked, he
-- sees to it.
create or replace function postdate.recur_skip(schedule bigint, carrier uuid) returns void language plpgsql as $$
declare
    r postdate.recur;
    latest uuid := postdate.moved_latest(carrier);
begin
    select x.* into r from postdate.recur x where x.id = schedule and x.message = carrier for update skip locked;
    if not found then return; end if;
    r.passed := r.nominal;
    if latest <> carrier then
        r.last := latest;
        r.last_nominal := r.nominal;
    end if;
    perform postdate.recur_step(r, postdate.recur_after(r, r.nominal), clock_timestamp(), r.grace, 0);
end $$;

-- The next nominal time by the rules as they are now. A fixed time is looked for from some hours before: it may have moved to earlier.
create function postdate.recur_again(r postdate.recur, now_at timestamptz) returns timestamptz language sql stable as $$
    select postdate.recur_after(r, greatest(r.passed, r.last_nominal, case when (r.plan).wild then now_at else r.nominal - interval '3 hours' end))
$$;

create or replace function postdate.recur_anew(r postdate.recur, now_at timestamptz) returns boolean language plpgsql as $$
declare
    upcoming timestamptz := postdate.recur_again(r, now_at);
begin
    if upcoming is not distinct from r.nominal then return false; end if;
    if r.paused then
        update postdate.recur x set nominal = upcoming where x.id = r.id;
        return true;
    end if;
    if postdate.recur_let_go(r, '-infinity') then return false; end if; -- on its way: the janitor carries it on
    perform postdate.recur_step(r, upcoming, now_at, r.grace, r.skipped);
    return true;
end $$;

-- For the janitors: has a zone changed since its schedules were computed? After 200 days all of a zone are computed anew, for the mark tells
-- of 400 days only. None is locked that stays as it is. Returns what is worth a line in the log.
create or replace function postdate.recur_zones() returns setof text language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = auto as $$
declare
    z record;
    r postdate.recur;
    one bigint;
    now_at timestamptz := clock_timestamp();
    changed integer;
    busy boolean;
begin
    for z in select d.zone, k.from_at, k.mark from (select distinct x.zone from postdate.recur x where x.zone <> 'UTC') d left join postdate.recur_zone k on k.zone = d.zone loop
        continue when z.mark = postdate.zone_print(z.zone, z.from_at) and z.from_at > now_at - interval '200 days';
        changed := 0;
        busy := false;
        for one in select x.id from postdate.recur x
                    where x.zone = z.zone and z.mark is not null and (x.plan).every_s is null and x.nominal > now_at
                      and postdate.recur_again(x, now_at) is distinct from x.nominal loop
            select x.* into r from postdate.recur x where x.id = one and x.nominal > now_at for update skip locked;
            if found then changed := changed + postdate.recur_anew(r, now_at)::integer;
            else busy := true; end if;
        end loop;
        if changed > 0 then return next 'recur: the rules of ' || z.zone || ' have changed: ' || changed || ' next occurrences computed anew'; end if;
        continue when busy; -- and again with the next look
        insert into postdate.recur_zone as k (zone, from_at, mark) values (z.zone, date_trunc('day', now_at, 'UTC'), postdate.zone_print(z.zone, date_trunc('day', now_at, 'UTC')))
            on conflict on constraint recur_zone_pkey do update set from_at = excluded.from_at, mark = excluded.mark;
    end loop;
end $$;
