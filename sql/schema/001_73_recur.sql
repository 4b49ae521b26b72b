-- Recurring schedules. The next occurrence of a schedule is an ordinary message, whose row in postdate.message has the schedule's id: the claim of that row creates
-- the next occurrence in the same transaction (postdate.recur_claim). So there is no leader, and no occurrence is created twice or lost. A session that changes a
-- schedule locks its row here first, then the message's. Each decision about an occurrence is recorded, so that it is not made again.
create table postdate.recur (
    id           bigint generated always as identity primary key,
    name         text not null unique,
    cron         text not null,
    dialect      text check (dialect in ('cron', 'quartz')), -- which day of the week 1 is; null: not specified
    zone         text not null,
    plan         postdate.cron_plan not null,  -- cron, parsed
    anchor       timestamptz not null,         -- the start of @every
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
    nominal      timestamptz,                  -- of the next occurrence; null: there is none
    passed       timestamptz,                  -- all occurrences up to this nominal time are decided: delivered, missed, skipped, cancelled, or before the schedule was set
    run_from     timestamptz not null default clock_timestamp(), -- from this nominal time up to `passed`, none was skipped for lateness
    runs         tstzmultirange,               -- earlier such ranges, before occurrences were skipped, or while the clock was wrong (recur_run)
    earliest     timestamptz,                  -- with jitter: the due time of the previous occurrence; none is due before that
    skipped      integer not null default 0,   -- occurrences that were skipped before it
    message      uuid,                         -- the message of the next occurrence; null: paused, ended, or too far ahead for a row
    last_nominal timestamptz,                  -- of the last occurrence that was claimed …
    last         uuid,                         -- … and its message
    kept         uuid,                         -- its message, whose day was dropped …
    kept_state   text,                         -- … how it ended …
    kept_at      timestamptz,                  -- … and when
    look_at      timestamptz,                  -- when a janitor must check it (postdate.recur_look)
    error        text,                         -- why the next occurrence could not be created
    created_at   timestamptz not null default clock_timestamp(),
    changed_at   timestamptz not null default clock_timestamp(),
    changed_by   text not null default session_user
);
create index recur_look on postdate.recur (look_at) where look_at is not null;
-- Schedules that may hold work back: counted each second (sql/query/status_held.sql).
create index recur_held on postdate.recur (paused) where paused or overlap = 'skip' and skipped > 0;

-- Jitter is always the same for an occurrence. It is computed four times for each.
create function postdate.recur_due(name text, jitter interval, nominal timestamptz) returns timestamptz language plpgsql immutable as $$
begin
    if jitter = '0' then return nominal; end if;
    return nominal + ((hashtextextended(name || '@' || date_part('epoch', nominal), 0) & 2147483647)
                      % greatest((date_part('epoch', jitter) * 1000)::bigint, 1)) * interval '1 millisecond';
end $$;

-- When an occurrence is due: jitter makes none overtake the one before it. So the next one, which is made when the one before is
-- claimed, is never late already by then; it never moves by more than the jitter, for the one before did not either.
create function postdate.recur_at(r postdate.recur, nominal timestamptz) returns timestamptz language plpgsql immutable as $$
begin
    if nominal is null or r.jitter = '0' then return nominal; end if;
    return greatest(postdate.recur_due(r.name, r.jitter, nominal), r.earliest);
end $$;

-- The next nominal time that is not decided.
create function postdate.recur_after(r postdate.recur, after timestamptz) returns timestamptz language plpgsql stable as $$
declare
    n timestamptz := postdate.cron_next(r.plan, r.zone, case when r.from_at > after then r.from_at - interval '1 microsecond' else after end, r.anchor, r.dst = 'run');
begin
    while r.runs @> n loop
        n := postdate.cron_next(r.plan, r.zone, (select upper(x) from unnest(r.runs) x where x @> n), r.anchor, r.dst = 'run');
    end loop;
    return case when n > r.until_at then null else n end;
end $$;

-- What was decided without a gap is a run. Here one ends, and the next one begins after the gap.
create function postdate.recur_run_on(r postdate.recur, from_at timestamptz) returns postdate.recur language plpgsql stable as $$
begin
    if r.run_from <= r.passed then
        select range_agg(x.run) into r.runs
          from (select u.run from unnest(coalesce(r.runs, '{}') + tstzmultirange(tstzrange(r.run_from, r.passed, '[]'))) u (run) order by u.run desc limit 4) x;
    end if;
    r.run_from := recur_run_on.from_at;
    return r;
end $$;

-- The schedule goes on with the last run that began before now: what a clock that was wrong left out comes in its time, and what came by that
-- clock does not come again. With a clock that was always right it is the one that it has.
create function postdate.recur_run(r postdate.recur, now_at timestamptz) returns postdate.recur language plpgsql stable as $$
declare
    right_one tstzrange;
begin
    if r.run_from <= now_at and r.runs is null then return r; end if;
    select x into right_one from unnest(r.runs) x where lower(x) <= now_at order by x desc limit 1;
    if right_one is null or r.run_from between lower(right_one) and now_at then return r; end if;
    r := postdate.recur_run_on(r, lower(right_one));
    r.passed := upper(right_one);
    r.runs := r.runs - tstzmultirange(right_one);
    r.earliest := null;
    return r;
end $$;

-- Not for claims: an insert of the same key waits for the other transaction.
create function postdate.recur_key(r postdate.recur) returns void language sql as $$
    insert into postdate.key (exchange, key, due, id) values (r.exchange, 'recur/' || r.name, clock_timestamp(), gen_random_uuid()) on conflict do nothing
$$;

-- When an occurrence is missed that is made now, within grace. One that is due already gets five seconds to be claimed in: those that
-- follow it depend on it, and it may be within grace by a moment only. Counted from now, for many may be made in one transaction.
-- Volatile, as what it asks, so that it is inlined.
create function postdate.recur_late_at(want timestamptz, grace interval) returns timestamptz language sql as $$
    select case when want <= clock_timestamp() then greatest(want + grace, clock_timestamp() + interval '5 s') else want + grace end
$$;

-- One occurrence as a message. The next occurrence takes the key, unless another transaction has it locked: a caller's open transaction must not delay a claim.
create function postdate.recur_insert(r postdate.recur, nominal timestamptz, now_at timestamptz, skipped integer, carries boolean) returns uuid
language plpgsql as $$
declare
    want timestamptz := postdate.recur_at(r, nominal);
    at timestamptz := postdate.due_round(want, now_at);
    row_id uuid := postdate.id_make(at, (select cell from postdate.settings));
begin
    insert into postdate.message (due, next_at, created_at, id, hold, exchange, routing_key, key, properties, properties_json, body, recur, late_at)
    values (at, at, now_at, row_id, 'g', r.exchange, r.routing_key, 'recur/' || r.name, '',
            jsonb_set(r.content, '{headers}', r.content -> 'headers' || jsonb_build_object('x-postdate-recur', r.name,
                'x-postdate-nominal', (date_part('epoch', nominal) * 1000)::bigint)
                || case when skipped > 0 then jsonb_build_object('x-postdate-missed', skipped) else '{}' end),
            r.body, case when carries then r.id end, case when carries then postdate.recur_late_at(want, r.grace) end);
    if carries then
        update postdate.key k set due = at, id = row_id
          from (select x.exchange, x.key from postdate.key x where x.exchange = r.exchange and x.key = 'recur/' || r.name for update skip locked) f
         where k.exchange = f.exchange and k.key = f.key;
    end if;
    return row_id;
end $$;

-- Which from `pending` on were missed: those that are later than grace after they could have come (recur_at), or, of one that was paused,
-- due at all. The last hundred are named; how many is counted to two hundred: so many as are made, and as many left out as a header says.
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
    while next is not null and count < 200 and postdate.recur_at(r, next) + grace < now_at loop
        missed := missed || next;
        count := count + 1;
        next := postdate.recur_after(r, next);
    end loop;
    hundred := next;
    while next is not null and postdate.recur_at(r, next) + grace < now_at loop
        -- more than that: from near the end, further back until there are enough
        count := 201;
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
    missed := missed || walked;
    missed := missed[greatest(cardinality(missed) - 99, 1):];
end $$;

-- Is the occurrence before still waiting here: not delivered, failed, or refused and to come back, or dead? It may have been moved.
create function postdate.recur_waits(id uuid) returns boolean language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    latest uuid := postdate.moved_latest(recur_waits.id);
begin
    return exists (select from postdate.message_now m where m.id = latest and (m.settled_at is null or m.state = 'failed'))
        or exists (select from postdate.lineage l where l.id in (recur_waits.id, latest) and (l.died_at is not null or exists (
                select from postdate.message_now m where m.id = l.message and (m.settled_at is null or m.state = 'failed'))));
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
    when undefined_table then return true; -- storing the row gives a better error
end $$;

-- The schedule continues with `pending`, or with the next one if that was missed. r.passed is before it. The caller has its row locked. Which of the missed ones
-- (recur_pass) are delivered is decided here: none with missed 'none', nor with overlap 'skip' while the last occurrence waits; with missed 'all' and overlap 'allow'
-- all of the last hundred; else the last one.
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
    closed boolean;
begin
    p := postdate.recur_pass(r, pending, now_at, grace);
    if p.count > 0 and r.missed <> 'none' and not (r.overlap = 'skip' and r.last is not null and postdate.recur_waits(r.last)) then
        first_ := case when r.missed = 'all' and r.overlap = 'allow' then 1 else cardinality(p.missed) end;
        made := cardinality(p.missed) - first_ + 1;
        if made < p.count then r := postdate.recur_run_on(r, p.missed[first_]); end if;
        for i in first_..cardinality(p.missed) loop
            r.last := postdate.recur_insert(r, p.missed[i], now_at, case when i = first_ then least(left_out + p.count - made, 100) else 0 end, false);
        end loop;
        r.last_nominal := p.missed[cardinality(p.missed)];
        left_out := 0;
    elsif p.count > 0 then
        left_out := least(left_out + p.count, 100);
        r := postdate.recur_run_on(r, p.missed[cardinality(p.missed)] + interval '1 microsecond');
    end if;
    if p.count > 0 then r.passed := p.missed[cardinality(p.missed)]; end if;
    due_at := postdate.recur_at(r, p.next);
    select x.max_delay_ms, x.wake_ms into s from postdate.settings x;
    too_far := due_at > now_at + s.max_delay_ms * interval '1 millisecond';
    closed := not too_far and not postdate.recur_day_open(postdate.due_round(due_at, now_at));
    if p.next is not null and not too_far and not closed then row_id := postdate.recur_insert(r, p.next, now_at, left_out, true); end if;
    update postdate.recur x
       set nominal = p.next, skipped = left_out, message = row_id, last = r.last, last_nominal = r.last_nominal, passed = r.passed, run_from = r.run_from,
           runs = r.runs, earliest = r.earliest, error = null,
           look_at = case when p.next is null then null when too_far then due_at - s.max_delay_ms * interval '0.5 millisecond'
                          when closed then now_at + interval '5 s'
                          else least(due_at + r.grace, greatest(due_at, now_at) + interval '30 s') end
     where x.id = r.id;
    if made > 0 or due_at < now_at + s.wake_ms * interval '1 millisecond' then perform postdate.wake(); end if;
    return case when p.count > 0 then 'recur ' || r.name || ': ' || case when p.count > 100 then 'more than 100' else p.count::text end
        || ' missed since ' || pending || ', ' || made || ' of them delivered late' end;
end $$;
