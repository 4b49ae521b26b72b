-- Setting, pausing, resuming, running and removing a schedule.

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
    elsif not postdate.recur_year(r.from_at) or not postdate.recur_year(r.until_at) then
        perform postdate.refuse('recur: ' || case when postdate.recur_year(r.from_at) then 'until' else 'from' end || ' is out of range',
            'It is ' || case when postdate.recur_year(r.from_at) then r.until_at else r.from_at end || '.', 'Allowed are the years 1970 to 9999. Leave it out if it limits nothing.');
    elsif r.until_at <= r.from_at then
        perform postdate.refuse('recur: it ends before it begins', 'from is ' || r.from_at || ', until is ' || r.until_at || '.', 'until must be later than from.');
    end if;
end $$;

create function postdate.recur_row(name text, cron text, zone text, exchange text, routing_key text, body bytea, missed text, grace interval, jitter interval,
    dst text, overlap text, from_at timestamptz, until_at timestamptz, dialect text) returns postdate.recur language plpgsql immutable as $$
declare
    r postdate.recur;
begin
    r.name := name; r.cron := cron; r.dialect := dialect; r.zone := zone; r.exchange := exchange; r.routing_key := routing_key; r.body := body; r.missed := missed;
    r.grace := grace; r.jitter := date_trunc('milliseconds', jitter); r.dst := dst; r.overlap := overlap;
    r.from_at := date_trunc('milliseconds', from_at); r.until_at := until_at;
    return r;
end $$;

-- What is to be set, checked and complete; nothing is stored or locked.
create function postdate.recur_draft(r postdate.recur, body_kind "char", headers jsonb, properties jsonb) returns postdate.recur language plpgsql as $$
declare
    s postdate.settings;
    d postdate.draft;
    now_at timestamptz := clock_timestamp();
begin
    select * into strict s from postdate.settings;
    perform postdate.recur_short('name', r.name);
    perform postdate.recur_check(r);
    r.plan := postdate.cron_parse(r.cron, r.dialect);
    r.zone := postdate.zone_check(coalesce(r.zone, 'UTC'));
    r.cron := btrim(regexp_replace(r.cron, E'\\s+', ' ', 'g'));
    d := postdate.draft_make(s, now_at, r.routing_key, r.body, body_kind, now_at, r.exchange, coalesce(headers, '{}'), properties, null, 'keep', 'gateway');
    r.exchange := d.exchange;
    r.content := d.properties_json;
    r.anchor := coalesce(r.from_at, date_trunc('second', now_at));
    return r;
end $$;

-- Refuses what would never run. over_too: what has ended already, or whose last year has passed, is no mistake.
create function postdate.recur_check_runs(r postdate.recur, upcoming timestamptz, now_at timestamptz, over_too boolean) returns void language plpgsql as $$
begin
    if upcoming is not null or (over_too and (r.until_at <= now_at or (r.plan).years is not null)) then return; end if;
    perform postdate.refuse('recur: it would never run',
        case when r.until_at is null then 'The last time that ' || postdate.shown(r.cron) || ' names has passed.' else 'until is ' || r.until_at || '.' end,
        case when r.until_at is null then 'Name a later year.' else 'Set until later than its first occurrence.' end);
end $$;

-- Changes a schedule, which is locked. What was cancelled or moved stays so, unless the times are others now.
create function postdate.recur_change_to(old postdate.recur, r postdate.recur, now_at timestamptz) returns postdate.recur language plpgsql as $$
declare
    gone boolean := postdate.recur_let_go(old, now_at);
    same_times boolean := (old.cron, old.dialect, old.zone, old.dst, old.from_at) is not distinct from (r.cron, r.dialect, r.zone, r.dst, r.from_at);
begin
    if gone then old := postdate.recur_pass_by(old, true); end if;
    update postdate.recur x
       set cron = r.cron, dialect = r.dialect, zone = r.zone, plan = r.plan, exchange = r.exchange, routing_key = r.routing_key, body = r.body, content = r.content,
           missed = r.missed, grace = r.grace, jitter = r.jitter, dst = r.dst, overlap = r.overlap, from_at = r.from_at, until_at = r.until_at,
           anchor = case when x.cron = r.cron and x.from_at is not distinct from r.from_at then x.anchor else r.anchor end,
           last = old.last, last_nominal = old.last_nominal, earliest = old.earliest, passed = old.passed, changed_at = now_at, changed_by = session_user, message = null
     where x.id = old.id
    returning x.* into r;
    if not same_times then
        r.run_from := now_at;
        r.runs := null;
    elsif postdate.recur_after(r, r.passed) <= now_at then
        r := postdate.recur_run_on(r, now_at);
    end if;
    -- The last one may have been let go a little ahead. Far ahead, it was by a clock that was wrong.
    r.passed := greatest(now_at, least(r.last_nominal, r.passed), case when same_times then r.passed end);
    -- the one that was decided on may be one of the new times, too
    if not same_times and old.passed > now_at and postdate.recur_after(r, r.passed) = old.passed then r.passed := old.passed; end if;
    return r;
end $$;

-- From when on @every counts in a schedule that is made. One that was removed and is set again, by "undo" say, goes on as before.
create function postdate.recur_anchor(r postdate.recur) returns timestamptz language sql stable as $$
    select coalesce(case when c.what = 'remove' and r.from_at is null and c.old -> 'from' is null and c.old ->> 'cron' = r.cron then c.anchor end, r.anchor)
      from (select) one left join (select x.* from postdate.recur_change x where x.name = r.name order by x.id desc limit 1) c on true
$$;

-- Makes the schedule or changes it; returns its next nominal time. A change counts from now on. It may be removed meanwhile: then it is made.
create function postdate.recur_store(r postdate.recur, over_too boolean) returns timestamptz language plpgsql as $$
declare
    old postdate.recur;
    now_at timestamptz;
    made boolean;
    upcoming timestamptz;
begin
    loop
        insert into postdate.recur as x (name, cron, dialect, zone, plan, anchor, exchange, routing_key, body, content, missed, grace, jitter, dst, overlap, from_at, until_at)
        values (r.name, r.cron, r.dialect, r.zone, r.plan, postdate.recur_anchor(r), r.exchange, r.routing_key, r.body, r.content, r.missed, r.grace, r.jitter, r.dst, r.overlap, r.from_at, r.until_at)
            on conflict on constraint recur_name_key do nothing
        returning x.* into old;
        made := found;
        exit when made;
        select x.* into old from postdate.recur x where x.name = r.name for update;
        exit when found; -- else whoever had it locked has removed it
    end loop;
    now_at := clock_timestamp(); -- who had it locked has let its occurrences go by now
    if not made then
        if (old.cron, old.dialect, old.zone, old.exchange, old.routing_key, old.body, old.content, old.missed, old.grace, old.jitter, old.dst, old.overlap, old.from_at, old.until_at)
           is not distinct from (r.cron, r.dialect, r.zone, r.exchange, r.routing_key, r.body, r.content, r.missed, r.grace, r.jitter, r.dst, r.overlap, r.from_at, r.until_at) then
            return old.nominal;
        end if;
        old := postdate.recur_change_to(old, r, now_at);
    else
        old.passed := now_at;
    end if;
    perform postdate.recur_key(old);
    upcoming := postdate.recur_after(old, old.passed);
    perform postdate.recur_check_runs(old, upcoming, now_at, over_too);
    if old.paused then
        update postdate.recur x set nominal = upcoming, passed = old.passed, skipped = 0, look_at = null where x.id = old.id;
    else
        perform postdate.recur_step(old, upcoming, now_at, old.grace, 0);
    end if;
    perform postdate.commit_durably();
    return upcoming;
end $$;

-- Makes the schedule or changes it; returns its next nominal time. A change counts from now on.
do $$
declare
    kind text;
begin
    foreach kind in array '{text,bytea,json,jsonb}'::text[] loop
        execute format($f$
create function postdate.recur_set(name text, cron text, routing_key text, body %1$s, zone text default 'UTC', exchange text default null,
    headers jsonb default null, properties jsonb default null, missed text default 'one', grace interval default '1 minute', jitter interval default '0',
    dst text default 'run', overlap text default 'allow', from_at timestamptz default null, until_at timestamptz default null,
    dialect text default null)
returns timestamptz language plpgsql security definer set search_path = pg_catalog, pg_temp as $b$
begin
    return postdate.recur_store(postdate.recur_draft(postdate.recur_row(name, cron, zone, exchange, routing_key, %2$s, missed, grace, jitter, dst, overlap, from_at, until_at, dialect),
                              %3$L, headers, properties), false);
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
    if postdate.recur_let_go(r, '-infinity') then
        r := postdate.recur_pass_by(r, true);
        r.nominal := postdate.recur_after(r, r.nominal);
    end if;
    update postdate.recur x
       set paused = true, message = null, look_at = null, nominal = r.nominal, passed = r.passed, last = r.last, last_nominal = r.last_nominal, earliest = r.earliest,
           changed_at = clock_timestamp(), changed_by = session_user
     where x.id = r.id;
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

create function postdate.recur_run_once(name text, request text) returns uuid language plpgsql as $$
declare
    r postdate.recur;
    now_at timestamptz := date_trunc('milliseconds', clock_timestamp());
    row_id uuid;
begin
    select x.* into r from postdate.recur x where x.name = recur_run_once.name;
    if not found then return null; end if;
    if request is not null then
        select c.message into row_id from postdate.recur_change c
         where c.name = recur_run_once.name and c.what = 'run' and c.request = recur_run_once.request and c.at > now_at - interval '1 day';
        if found then return row_id; end if;
    end if;
    r.jitter := '0';
    row_id := postdate.recur_insert(r, now_at, clock_timestamp(), 0, false);
    perform postdate.recur_note(r.name, 'run', null, null, row_id, request);
    perform postdate.commit_durably();
    perform postdate.wake();
    return row_id;
end $$;

-- One occurrence more, at once; the others stay as they are. Null: there is no such schedule.
create function postdate.recur_run(name text) returns uuid language sql security definer set search_path = pg_catalog, pg_temp as $$
    select postdate.recur_run_once(name, null)
$$;
