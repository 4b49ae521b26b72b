-- Version 16, part 3 of 3: what people see of recurring schedules, what other operations have to know of them, and who may do what.

-- What the day has of a change of the clock; null: none.
create function postdate.zone_mark(zone text, at timestamptz) returns text language plpgsql stable as $$
declare
    day timestamp := date_trunc('day', at at time zone zone);
    morning timestamptz := (day - interval '1 second') at time zone zone;
    night timestamptz := (day + interval '1 day') at time zone zone;
    by_ interval := ((night at time zone zone) - (morning at time zone zone)) - (night - morning);
    change timestamptz;
begin
    if by_ = '0' then return null; end if;
    change := postdate.zone_change(zone, morning, night);
    return 'clock goes ' || case when by_ > '0' then 'forward' else 'back' end || ' to ' || to_char(change at time zone zone, 'HH24:MI')
        || ' at ' || to_char((change at time zone zone) - by_, 'HH24:MI');
end $$;

create function postdate.zone_shown(zone text, at timestamptz) returns text language sql stable as $$
    select to_char(w, 'YYYY-MM-DD"T"HH24:MI:SS') || case when o < '0' then '-' else '+' end || to_char(case when o < '0' then -o else o end, 'HH24:MI')
      from (select at at time zone zone as w, (at at time zone zone) - (at at time zone 'UTC') as o) x
$$;

create function postdate.recur_preview(cron text, zone text default 'UTC', n integer default 10, from_at timestamptz default null, dst text default 'run')
returns table (at timestamptz, local text, mark text) language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    p postdate.cron_plan := postdate.cron_parse(cron);
    z text := postdate.zone_check(zone);
    anchor timestamptz := date_trunc('second', coalesce(from_at, clock_timestamp()));
begin
    at := coalesce(from_at, clock_timestamp());
    for i in 1..least(n, 1000) loop
        at := postdate.cron_next(p, z, at, anchor, dst is distinct from 'skip');
        exit when at is null;
        local := postdate.zone_shown(z, at);
        mark := postdate.zone_mark(z, at);
        return next;
    end loop;
end $$;

-- The same of a schedule, with its from and until.
create function postdate.recur_upcoming(name text, n integer default 10)
returns table (at timestamptz, local text, mark text) language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    r postdate.recur;
begin
    select x.* into r from postdate.recur x where x.name = recur_upcoming.name;
    at := r.nominal;
    for i in 1..least(n, 1000) loop
        exit when at is null;
        local := postdate.zone_shown(r.zone, at);
        mark := postdate.zone_mark(r.zone, at);
        return next;
        at := postdate.recur_after(r, at);
    end loop;
end $$;

create function postdate.recur_outcome(id uuid, out state text, out settled_at timestamptz, out due timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
begin
    select m.state, m.settled_at, m.due into state, settled_at, due from postdate.message m
     where m.due = postdate.id_due(recur_outcome.id) and m.id = recur_outcome.id;
end $$;

create view postdate.recurring as
select r.name, r.cron, r.zone, r.exchange, r.routing_key, r.body, r.content -> 'headers' as headers, nullif(r.content -> 'properties', 'null') as properties,
       r.missed, r.grace, r.jitter, r.dst, r.overlap, r.from_at, r.until_at, r.paused,
       r.nominal as next_at, r.message as next_id, r.last_nominal as last_at, r.last as last_id, o.state as last_state, o.settled_at as last_settled_at,
       o.settled_at - greatest(o.due, r.last_nominal) as last_lateness, r.error, r.created_at, r.changed_at, r.changed_by
  from postdate.recur r left join lateral postdate.recur_outcome(r.last) o on r.last is not null;

-- --- as JSON, for command line, HTTP and control queue

create function postdate.recur_duration(field text, value text) returns interval language plpgsql immutable as $$
begin
    if value is null then return null; end if;
    if value ~ '^([0-9]+(ms|s|m|h|d|w))+$' or value ~ '^P(T?[0-9])' then return value::interval; end if;
    raise invalid_datetime_format;
exception when data_exception then
    perform postdate.refuse('recur: ' || field || ' is no duration', 'It is ' || postdate.shown(value) || '.', 'Write 250ms, 90s, 15m, 36h, 30d or ISO 8601 (PT15M).');
end $$;

create function postdate.recur_duration_shown(value interval) returns text language sql immutable as $$
    select case when ms % 86400000 = 0 and ms > 0 then ms / 86400000 || 'd' when ms % 3600000 = 0 and ms > 0 then ms / 3600000 || 'h'
                when ms % 60000 = 0 and ms > 0 then ms / 60000 || 'm' when ms % 1000 = 0 then ms / 1000 || 's' else ms || 'ms' end
      from (select (date_part('epoch', value) * 1000)::bigint as ms) x
$$;

create function postdate.recur_time(field text, value text) returns timestamptz language plpgsql immutable as $$
begin
    if value is null or value ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$' then return value::timestamptz; end if;
    raise invalid_datetime_format;
exception when data_exception then
    perform postdate.refuse('recur: ' || field || ' is no time', 'It is ' || postdate.shown(value) || '.', 'Write RFC 3339 with an offset, such as 2026-11-22T08:00:00Z.');
end $$;

create function postdate.recur_time_shown(at timestamptz) returns text language sql immutable as $$
    select to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

create function postdate.recur_object(r postdate.recurring) returns jsonb language sql stable as $$
    select jsonb_build_object('name', r.name, 'cron', r.cron, 'zone', r.zone, 'exchange', r.exchange, 'routing_key', r.routing_key,
               'missed', r.missed, 'grace', postdate.recur_duration_shown(r.grace), 'jitter', postdate.recur_duration_shown(r.jitter), 'dst', r.dst, 'overlap', r.overlap,
               'from', postdate.recur_time_shown(r.from_at), 'until', postdate.recur_time_shown(r.until_at), 'paused', r.paused)
        || jsonb_build_object('next_at', postdate.recur_time_shown(r.next_at), 'next_id', r.next_id, 'last_at', postdate.recur_time_shown(r.last_at), 'last_id', r.last_id,
               'last_state', r.last_state, 'last_lateness_ms', round(extract(epoch from r.last_lateness) * 1000), 'error', r.error,
               'created_at', postdate.recur_time_shown(r.created_at), 'changed_at', postdate.recur_time_shown(r.changed_at), 'changed_by', r.changed_by)
        || jsonb_build_object('headers', r.headers, 'properties', r.properties)
        || case when jsonb_typeof(postdate.wire_text(r.body)) = 'string' then jsonb_build_object('body', postdate.wire_text(r.body))
                else jsonb_build_object('body_base64', postdate.wire_text(r.body) -> '!bytes') end
$$;

create function postdate.recur_set_object(name text, o jsonb) returns void language plpgsql as $$
declare
    unknown text := (select k from jsonb_object_keys(o) k where k <> all ('{name,cron,zone,exchange,routing_key,body,body_base64,json,headers,properties,missed,grace,jitter,dst,overlap,from,until}') limit 1);
    bodies integer := (o ? 'body')::integer + (o ? 'body_base64')::integer + (o ? 'json')::integer;
    r postdate.recur;
begin
    if unknown is not null then
        perform postdate.refuse('recur: ' || left(unknown, 80) || ' is no field', 'Its value is ' || postdate.shown(o ->> unknown) || '.',
            'Allowed are cron, zone, exchange, routing_key, body or body_base64 or json, headers, properties, missed, grace, jitter, dst, overlap, from, until.');
    elsif bodies <> 1 then
        perform postdate.refuse('recur: the body is ' || case bodies when 0 then 'missing' else 'given twice' end, 'There are ' || bodies || '.', 'Give one of body, body_base64, json.');
    end if;
    r := postdate.recur_row(name, o ->> 'cron', o ->> 'zone', o ->> 'exchange', o ->> 'routing_key',
        case when o ? 'json' then convert_to((o -> 'json')::text, 'UTF8') when o ? 'body' then convert_to(o ->> 'body', 'UTF8') else decode(o ->> 'body_base64', 'base64') end,
        coalesce(o ->> 'missed', 'one'), coalesce(postdate.recur_duration('grace', o ->> 'grace'), '1 minute'),
        coalesce(postdate.recur_duration('jitter', o ->> 'jitter'), '0'), coalesce(o ->> 'dst', 'run'), coalesce(o ->> 'overlap', 'allow'),
        postdate.recur_time('from', o ->> 'from'), postdate.recur_time('until', o ->> 'until'));
    perform postdate.recur_put(r, case when o ? 'json' then 'j'::"char" else 't' end, nullif(o -> 'headers', 'null'), nullif(o -> 'properties', 'null'));
end $$;

-- All operations, with a JSON argument and answer; null: there is no such schedule. scope: the exchanges that the caller may use; null: all.
create function postdate.recur_do(operation text, name text, arg jsonb, scope text[]) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    place text := (select r.exchange from postdate.recur r where r.name = recur_do.name);
begin
    if operation = 'preview' and name is null then
        return coalesce((select jsonb_agg(jsonb_build_object('at', postdate.recur_time_shown(v.at), 'local', v.local, 'mark', v.mark))
            from postdate.recur_preview(arg ->> 'cron', coalesce(arg ->> 'zone', 'UTC'), coalesce((arg ->> 'n')::integer, 10),
                                        postdate.recur_time('from', arg ->> 'from'), coalesce(arg ->> 'dst', 'run')) v), '[]');
    elsif operation = 'list' then
        return (select coalesce(jsonb_agg(postdate.recur_object(v)), '[]') from (
            select v from postdate.recurring v where (scope is null or v.exchange = any (scope)) and v.name > coalesce(arg ->> 'after', '')
             order by v.name limit coalesce((arg ->> 'limit')::integer, 100)) x);
    elsif place is not null and place <> all (coalesce(scope, array[place])) then
        if operation <> 'set' then return null; end if;
        perform postdate.refuse('recur: the name is taken', 'It is ' || postdate.shown(name) || '.', 'Use another name.', '42501');
    elsif operation = 'set' then
        place := coalesce(arg ->> 'exchange', (select s.exchange from postdate.settings s));
        if place <> all (coalesce(scope, array[place])) then
            perform postdate.refuse('exchange is not among those that you may use', 'It is ' || postdate.shown(place) || '.', 'Name one that your token lists.', '42501');
        end if;
        perform postdate.recur_set_object(name, arg);
    elsif place is null then
        return null;
    elsif operation = 'pause' then perform postdate.recur_pause(name);
    elsif operation = 'resume' then perform postdate.recur_resume(name);
    elsif operation = 'remove' then return to_jsonb(postdate.recur_remove(name));
    elsif operation = 'run' then return to_jsonb(postdate.recur_run(name));
    elsif operation = 'preview' then
        return (select coalesce(jsonb_agg(jsonb_build_object('at', postdate.recur_time_shown(v.at), 'local', v.local, 'mark', v.mark)), '[]')
                  from postdate.recur_upcoming(name, coalesce((arg ->> 'n')::integer, 10)) v);
    end if;
    return (select postdate.recur_object(v) from postdate.recurring v where v.name = recur_do.name);
end $$;

-- The same for programs: what is wrong with the argument, in one line.
create function postdate.recur_try(operation text, name text, arg jsonb, scope text[], out answer jsonb, out refusal text)
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = auto as $$
declare
    detail text;
    hint text;
begin
    answer := postdate.recur_do(operation, name, arg, scope);
exception when data_exception then
    get stacked diagnostics detail = pg_exception_detail, hint = pg_exception_hint;
    refusal := concat_ws(' ', sqlerrm || '.', nullif(detail, ''), nullif(hint, ''));
end $$;

-- As before (002_4_operate.sql), and a schedule goes on whose occurrence is cancelled, moved or ended by hand.
-- Deadlines, too: past its own a failed message is never tried again, and may have been delivered. That must not look like a cancelled
-- one, which never is. What is moved keeps its deadline, and is not moved beyond it ('past_deadline').
create or replace function postdate.do_cancel(wanted uuid, scope text[], out result text, out latest uuid)
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    m record;
begin
    -- What is settled or under way is answered without a lock.
    latest := postdate.moved_latest(wanted);
    select x.state, x.owner, x.deadline into m from postdate.message x
     where x.due = postdate.id_due(latest) and x.id = latest and (scope is null or x.exchange = any (scope));
    if not found then
        result := 'not_found';
        return;
    end if;
    if m.state in ('scheduled', 'failed', 'superseded') and m.owner is null then
        m := postdate.message_lock(wanted, scope, false);
        latest := coalesce(m.id, latest);
    end if;
    if m.state = 'cancelled' then
        result := 'done';
    elsif m.state = 'superseded' then
        result := 'not_found'; -- what it became was delivered or cancelled, and removed, long ago: who knows which
    elsif m.state = 'failed' and m.deadline < clock_timestamp() then
        result := 'too_late';
    elsif m.state in ('scheduled', 'failed') and m.owner is null then
        update postdate.message x
           set state = 'cancelled', settled_at = clock_timestamp(), body = '', properties = '', properties_json = null, error = null
         where x.due = m.due and x.id = m.id;
        if m.recur is not null then perform postdate.recur_skip(m.recur, m.id); end if;
        perform postdate.commit_durably();
        result := 'done';
    else
        result := case when m.state is null then 'not_found' else 'too_late' end;
    end if;
end $$;

create or replace function postdate.do_reschedule(wanted uuid, at timestamptz, shift interval, scope text[], out result text, out latest uuid)
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    s postdate.settings;
    m postdate.message;
    now_at timestamptz := clock_timestamp();
    new_due timestamptz;
    old_id uuid;
begin
    select * into strict s from postdate.settings;
    m := postdate.message_lock(wanted, scope, true);
    if m.id is null then
        result := 'not_found';
        return;
    end if;
    old_id := m.id;
    latest := m.id;
    if m.state not in ('scheduled', 'failed') or m.owner is not null then
        result := 'too_late';
        return;
    end if;
    new_due := coalesce(at, m.due + shift);
    if new_due > now_at + s.max_delay_ms * interval '1 millisecond' then
        result := 'too_far';
        return;
    end if;
    m.due := postdate.due_round(new_due, now_at);
    if m.due > m.deadline then
        result := 'past_deadline';
        return;
    end if;
    m.id := postdate.id_make(m.due);
    if m.key is not null and not postdate.key_regain(m.exchange, m.key, old_id, m.id, s.key_memory_ms) then
        result := 'key_taken';
        return;
    end if;
    insert into postdate.message (due, next_at, created_at, id, hold, exchange, routing_key, key, properties, properties_json, body, deadline)
    values (m.due, m.due, now_at, m.id, m.hold, m.exchange, m.routing_key, m.key, m.properties, m.properties_json, m.body, m.deadline);
    perform postdate.message_supersede(old_id, m.id);
    if m.recur is not null then perform postdate.recur_skip(m.recur, old_id); end if;
    perform postdate.after_write(s, m.due, now_at);
    latest := m.id;
    result := 'done';
end $$;

create or replace function postdate.do_fail(wanted uuid, scope text[], who text, out result text, out latest uuid)
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    m postdate.message;
begin
    m := postdate.message_lock(wanted, scope, false);
    latest := m.id;
    if m.id is null or m.state = 'superseded' then
        result := 'not_found';
    elsif m.state = 'failed' then
        result := 'done';
    elsif m.state not in ('scheduled', 'claimed') then
        result := 'too_late';
    elsif m.owner is not null and postdate.owner_lives(m.owner) then
        result := 'busy';
    else
        update postdate.message x
           set state = 'failed', settled_at = clock_timestamp(), owner = null, recur = null, late_at = null,
               error = case m.state when 'claimed' then 'may have been delivered; ' else '' end || 'ended by an operator (' || left(who, 100) || ')'
                       || coalesce('; before: ' || left(m.error, 300), '')
         where x.due = m.due and x.id = m.id;
        if m.recur is not null then perform postdate.recur_skip(m.recur, m.id); end if;
        perform postdate.commit_durably();
        result := 'done';
    end if;
end $$;

create or replace function postdate.key_regain(exchange text, key text, old_id uuid, new_id uuid, key_memory_ms bigint) returns boolean
language plpgsql as $$
declare
    holder uuid;
begin
    -- the key of a schedule names its next occurrence; the others do without
    if key ~ '^recur/' and exists (select from postdate.recur r where r.name = substr(key_regain.key, 7) and r.exchange = key_regain.exchange) then return true; end if;
    insert into postdate.key as k (exchange, key, due, id) values (key_regain.exchange, key_regain.key, postdate.id_due(new_id), new_id)
        on conflict on constraint key_pkey do update set due = excluded.due, id = excluded.id where k.id = old_id;
    if found then return true; end if;
    select k.id into holder from postdate.key k where k.exchange = key_regain.exchange and k.key = key_regain.key for update;
    if found and postdate.key_standing(holder, key_memory_ms) <> 'free' then return false; end if;
    update postdate.key k set due = postdate.id_due(new_id), id = new_id where k.exchange = key_regain.exchange and k.key = key_regain.key;
    return found;
end $$;

create or replace function postdate.roles_ensure() returns text[] language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    role text;
    f regprocedure;
    missing text[] := '{}';
begin
    foreach role in array '{postdate_producer,postdate_reader}'::text[] loop
        if not exists (select from pg_roles where rolname = role) then
            begin
                execute format('create role %I nologin', role);
            exception
                when duplicate_object or unique_violation then null; -- made by another database's migration just now
                when insufficient_privilege then
                    missing := missing || role;
                    continue;
            end;
        end if;
        execute format('grant usage on schema postdate to %I', role);
    end loop;
    if not 'postdate_producer' = any (missing) then
        for f in select p.oid::regprocedure from pg_proc p where p.pronamespace = 'postdate'::regnamespace
                    and p.proname in ('schedule', 'schedule_many', 'cancel', 'cancel_key', 'reschedule', 'retry', 'fail', 'recur_set',
                        'recur_remove', 'recur_pause', 'recur_resume', 'recur_run', 'recur_preview', 'recur_upcoming', 'recur_next') loop
            execute format('grant execute on function %s to postdate_producer', f);
        end loop;
    end if;
    if not 'postdate_reader' = any (missing) then
        grant select on postdate.messages, postdate.recurring to postdate_reader;
        grant execute on function postdate.message(uuid), postdate.id_due(uuid), postdate.recur_outcome(uuid) to postdate_reader;
        for f in select p.oid::regprocedure from pg_proc p where p.pronamespace = 'postdate'::regnamespace and (starts_with(p.proname, 'wire_') or p.proname in ('recur_preview', 'recur_upcoming', 'recur_next')) loop
            execute format('grant execute on function %s to postdate_reader', f);
        end loop;
    end if;
    return missing;
end $$;

revoke execute on all functions in schema postdate from public;
