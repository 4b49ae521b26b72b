-- Version 19, part 3 of 3: how schedules are set, paused and listed, and `postdate recur apply`, which locks only what it changes.

drop function postdate.recur_put(postdate.recur, "char", jsonb, jsonb);

-- What is to be set, checked and complete; nothing is stored or locked.
create function postdate.recur_draft(r postdate.recur, body_kind "char", headers jsonb, properties jsonb) returns postdate.recur language plpgsql as $$
declare
    s postdate.settings;
    d postdate.draft;
    now_at timestamptz := clock_timestamp();
begin
    select * into strict s from postdate.settings;
    perform postdate.recur_check(r);
    r.plan := postdate.cron_parse(r.cron);
    r.zone := postdate.zone_check(coalesce(r.zone, 'UTC'));
    r.cron := btrim(regexp_replace(r.cron, '\s+', ' ', 'g'));
    d := postdate.draft_make(s, now_at, r.routing_key, r.body, body_kind, now_at, r.exchange, coalesce(headers, '{}'), properties, null, 'keep', 'gateway');
    r.exchange := d.exchange;
    r.content := d.properties_json;
    r.anchor := coalesce(r.from_at, date_trunc('second', now_at));
    return r;
end $$;

-- Refuses what would never run. over_too: what has ended already is no mistake.
create function postdate.recur_check_runs(r postdate.recur, upcoming timestamptz, now_at timestamptz, over_too boolean) returns void language plpgsql as $$
begin
    if upcoming is null and not (over_too and r.until_at <= now_at) then
        perform postdate.refuse('recur: it would never run', 'until is ' || coalesce(r.until_at::text, 'not given') || '.', 'Set until later than its first occurrence.');
    end if;
end $$;

-- Changes a schedule, which is locked. What was cancelled or moved stays so, unless the times are others now.
create function postdate.recur_change_to(old postdate.recur, r postdate.recur, now_at timestamptz) returns postdate.recur language plpgsql as $$
declare
    gone boolean := postdate.recur_let_go(old, now_at);
    same_times boolean := (old.cron, old.zone, old.dst, old.from_at) is not distinct from (r.cron, r.zone, r.dst, r.from_at);
begin
    if gone then old := postdate.recur_pass_by(old, true); end if;
    update postdate.recur x
       set cron = r.cron, zone = r.zone, plan = r.plan, exchange = r.exchange, routing_key = r.routing_key, body = r.body, content = r.content,
           missed = r.missed, grace = r.grace, jitter = r.jitter, dst = r.dst, overlap = r.overlap, from_at = r.from_at, until_at = r.until_at,
           anchor = case when x.cron = r.cron and x.from_at is not distinct from r.from_at then x.anchor else r.anchor end,
           last = old.last, last_nominal = old.last_nominal, earliest = old.earliest, passed = old.passed, changed_at = now_at, changed_by = session_user, message = null
     where x.id = old.id
    returning x.* into r;
    r.passed := greatest(now_at, r.last_nominal, case when same_times then r.passed end);
    -- the one that was decided on may be one of the new times, too
    if not same_times and old.passed > now_at and postdate.recur_after(r, r.passed) = old.passed then r.passed := old.passed; end if;
    return r;
end $$;

-- Makes the schedule or changes it; returns its next nominal time. A change counts from now on.
create function postdate.recur_store(r postdate.recur, over_too boolean) returns timestamptz language plpgsql as $$
declare
    old postdate.recur;
    now_at timestamptz := clock_timestamp();
    upcoming timestamptz;
begin
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

create function postdate.recur_put(r postdate.recur, body_kind "char", headers jsonb, properties jsonb) returns timestamptz language sql as $$
    select postdate.recur_store(postdate.recur_draft(r, body_kind, headers, properties), false)
$$;

create or replace function postdate.recur_pause(name text) returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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

-- --- from JSON

drop function postdate.recur_set_object(text, json, text[]);

-- The definition in a JSON object; more: fields that are somebody else's. "json" is delivered byte for byte.
create function postdate.recur_parse(name text, o json, more text[] default '{}') returns postdate.recur language plpgsql as $$
declare
    known text[] := '{cron,zone,exchange,routing_key,body,body_base64,json,headers,properties,missed,grace,jitter,dst,overlap,from,until}';
    wrong text;
    body bytea;
    kind "char" := 't';
begin
    if json_typeof(o) is distinct from 'object' then
        perform postdate.refuse('recur: the schedule is no object', 'It is ' || postdate.shown(o::text) || '.', 'Write {"cron": …, "routing_key": …, "body": …}.');
    end if;
    select k into wrong from json_object_keys(o) k where k <> all (known || more) limit 1;
    if wrong is not null then
        perform postdate.refuse('recur: ' || left(wrong, 80) || ' is no field', 'Its value is ' || postdate.shown((o -> wrong)::text) || '.',
            'Allowed are cron, zone, exchange, routing_key, body or body_base64 or json, headers, properties, missed, grace, jitter, dst, overlap, from, until'
                || case when cardinality(more) > 0 then ', ' || array_to_string(more, ', ') else '' end || '.');
    end if;
    select k into wrong from json_object_keys(o) k group by k having count(*) > 1 limit 1;
    if wrong is not null then perform postdate.refuse('recur: ' || left(wrong, 80) || ' is given twice', 'The schedule is ' || postdate.shown(name) || '.', 'Give it once.'); end if;
    case num_nonnulls(postdate.recur_text(o, 'body'), postdate.recur_text(o, 'body_base64'), o -> 'json')
    when 1 then
    else
        perform postdate.refuse('recur: the body is ' || case when num_nonnulls(postdate.recur_text(o, 'body'), postdate.recur_text(o, 'body_base64'), o -> 'json') = 0
            then 'missing' else 'given twice' end, 'The schedule is ' || postdate.shown(name) || '.', 'Give one of body, body_base64, json.');
    end case;
    if o -> 'json' is not null then
        body := convert_to((o -> 'json')::text, 'UTF8');
        kind := 'j';
    elsif postdate.recur_text(o, 'body') is not null then
        body := convert_to(o ->> 'body', 'UTF8');
    elsif o ->> 'body_base64' !~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$' then
        perform postdate.refuse('recur: body_base64 is not base64', 'It is ' || postdate.shown(o ->> 'body_base64') || '.', 'Write base64 with padding, on one line.');
    else
        body := decode(o ->> 'body_base64', 'base64');
    end if;
    return postdate.recur_draft(postdate.recur_row(name, postdate.recur_text(o, 'cron'), postdate.recur_text(o, 'zone'), postdate.recur_text(o, 'exchange'),
            postdate.recur_text(o, 'routing_key'), body, postdate.recur_text(o, 'missed', 'one'),
            coalesce(postdate.recur_duration('grace', postdate.recur_text(o, 'grace')), '1 minute'),
            coalesce(postdate.recur_duration('jitter', postdate.recur_text(o, 'jitter')), '0'), postdate.recur_text(o, 'dst', 'run'),
            postdate.recur_text(o, 'overlap', 'allow'), postdate.recur_time('from', postdate.recur_text(o, 'from')),
            postdate.recur_time('until', postdate.recur_text(o, 'until'))),
        kind, nullif((o -> 'headers')::jsonb, 'null'), nullif((o -> 'properties')::jsonb, 'null'));
end $$;

create function postdate.recur_set_object(name text, o json) returns void language plpgsql as $$
begin
    perform postdate.recur_store(postdate.recur_parse(name, o), false);
end $$;

-- --- a whole set of them

-- What a schedule of the file says of a pause; null: it stays as it is.
create function postdate.recur_paused(o json) returns boolean language plpgsql as $$
begin
    if coalesce(json_typeof(o -> 'paused'), 'null') not in ('boolean', 'null') then
        perform postdate.refuse('recur: paused is neither true nor false', 'It is ' || postdate.shown(o ->> 'paused') || '.', 'Leave it out to let it be as it is.');
    end if;
    return (o ->> 'paused')::boolean;
end $$;

-- Makes one schedule equal to its definition, or says only how it differs: then nothing is locked, nor what is equal already. Null: it does not
-- differ. What is over already is right in a file that is kept for long.
create function postdate.recur_apply_one(name text, definition json, dry_run boolean) returns jsonb language plpgsql as $$
declare
    wanted postdate.recur := postdate.recur_parse(name, definition, '{paused}');
    paused boolean := postdate.recur_paused(definition);
    now_at timestamptz := clock_timestamp();
    r postdate.recur;
    before jsonb;
    after jsonb;
begin
    select x.* into r from postdate.recur x where x.name = recur_apply_one.name;
    if found then before := postdate.recur_definition(r) || jsonb_build_object('paused', r.paused); end if;
    after := postdate.recur_definition(wanted) || jsonb_build_object('paused', coalesce(paused, r.paused, false));
    if before is not distinct from after then return null; end if;
    if dry_run then
        perform postdate.recur_check_runs(wanted, postdate.recur_after(wanted, now_at), now_at, true);
    else
        perform postdate.recur_store(wanted, true);
        case paused when true then perform postdate.recur_pause(name); when false then perform postdate.recur_resume(name); else end case;
    end if;
    return jsonb_build_object('name', name, 'old', before, 'new', after);
end $$;

create or replace function postdate.recur_apply(schedules json, dry_run boolean default false, prefix text default '')
returns table (change text, name text, fields text[], old jsonb, new jsonb)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    changes jsonb[] := '{}';
    one record;
    changed jsonb;
    detail text;
    hint text;
begin
    if json_typeof(schedules) is distinct from 'object' then
        perform postdate.refuse('recur: the schedules are no object', 'They are ' || postdate.shown(schedules::text) || '.', 'Write {"schedules": {"name": {"cron": …}, …}}.');
    end if;
    for one in select k.key from json_each(schedules) k group by k.key having count(*) > 1 limit 1 loop
        perform postdate.refuse('recur: ' || postdate.shown(one.key) || ' is given twice', 'Names are unique.', 'Give each schedule once.');
    end loop;
    for one in select k.key, k.value from json_each(schedules) k order by k.key loop
        if not starts_with(one.key, prefix) then
            perform postdate.refuse('recur: ' || postdate.shown(one.key) || ' does not begin with the prefix', 'The prefix is ' || postdate.shown(prefix) || '.', 'Put it into another file.');
        end if;
        begin
            changed := postdate.recur_apply_one(one.key, one.value, dry_run);
        exception when data_exception then
            get stacked diagnostics detail = pg_exception_detail, hint = pg_exception_hint;
            perform postdate.refuse(postdate.shown(one.key) || ': ' || sqlerrm, detail, hint);
        end;
        if changed is not null then changes := changes || changed; end if;
    end loop;
    for one in select r.name, postdate.recur_definition(r) as definition from postdate.recur r
                where starts_with(r.name, prefix) and schedules -> r.name is null order by r.name loop
        if not dry_run then perform postdate.recur_remove(one.name); end if;
        changes := changes || jsonb_build_object('name', one.name, 'old', one.definition);
    end loop;
    return query
    select case when nullif(c -> 'old', 'null') is null then '+' when c -> 'new' is null then '-' else '~' end, c ->> 'name',
           case when nullif(c -> 'old', 'null') is not null and c -> 'new' is not null then array(
               select coalesce(a.key, b.key) from jsonb_each(c -> 'old') a full join jsonb_each(c -> 'new') b on a.key = b.key
                where a.value is distinct from b.value order by 1) end,
           nullif(c -> 'old', 'null'), c -> 'new'
      from unnest(changes) c order by c ->> 'name';
end $$;

-- --- what is seen

-- The last twenty of each schedule are kept, and apart from these its last twenty runs.
create or replace function postdate.recur_note(name text, what text, old jsonb, new jsonb, message uuid, request text) returns void language plpgsql as $$
begin
    insert into postdate.recur_change (name, who, what, old, new, message, request)
    values (recur_note.name, postdate.recur_who(), recur_note.what, recur_note.old, recur_note.new, recur_note.message, recur_note.request);
    delete from postdate.recur_change c
     where c.name = recur_note.name and (c.what = 'run') = (recur_note.what = 'run')
       and c.id <= (select x.id from postdate.recur_change x where x.name = recur_note.name and (x.what = 'run') = (recur_note.what = 'run')
                     order by x.id desc offset 20 limit 1);
end $$;

-- How an occurrence stands, wherever it was moved to; also 'refused' (by a consumer, and to come back) and 'dead'. Null: it is not kept.
create or replace function postdate.recur_outcome(id uuid, out state text, out settled_at timestamptz, out due timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    latest uuid := postdate.moved_latest(recur_outcome.id);
    l record;
begin
    select m.state, m.settled_at, m.due into state, settled_at, due from postdate.message m
     where m.due = postdate.id_due(latest) and m.id = latest;
    for l in select x.died_at, x.message from postdate.lineage x where x.id in (recur_outcome.id, latest) order by x.died_at loop
        if l.died_at is not null then
            state := 'dead';
            return;
        elsif exists (select from postdate.message m where m.due = postdate.id_due(l.message) and m.id = l.message and (m.settled_at is null or m.state = 'failed')) then
            state := 'refused';
        end if;
    end loop;
end $$;

create or replace view postdate.recurring as
select r.name, r.cron, r.zone, r.exchange, r.routing_key, r.body, r.content -> 'headers' as headers, nullif(r.content -> 'properties', 'null') as properties,
       r.missed, r.grace, r.jitter, r.dst, r.overlap, r.from_at, r.until_at, r.paused,
       r.nominal as next_at, r.message as next_id, r.last_nominal as last_at, r.last as last_id,
       coalesce(o.state, case when r.kept = r.last then r.kept_state end) as last_state,
       coalesce(o.settled_at, case when r.kept = r.last then r.kept_at end) as last_settled_at,
       coalesce(o.settled_at, case when r.kept = r.last then r.kept_at end) - greatest(coalesce(o.due, postdate.id_due(r.last)), r.last_nominal) as last_lateness,
       r.error, r.created_at, r.changed_at, r.changed_by, r.id || '-' || to_hex((date_part('epoch', r.changed_at) * 1000000)::bigint) as version
  from postdate.recur r left join lateral postdate.recur_outcome(r.last) o on r.last is not null;

-- For who drops a day of messages, just before: how the last occurrences in it ended.
create function postdate.recur_keep(day_table text) returns void language plpgsql as $$
declare
    begins bigint := extract(epoch from to_timestamp(right(day_table, 8), 'YYYYMMDD')::timestamp at time zone 'UTC') * 1000;
    from_id uuid := (lpad(to_hex(begins), 12, '0') || repeat('0', 20))::uuid;
    to_id uuid := (lpad(to_hex(begins + 86400000), 12, '0') || repeat('0', 20))::uuid;
begin
    execute format('update postdate.recur r set kept = f.last, kept_state = m.state, kept_at = m.settled_at
                      from (select x.id, x.last from postdate.recur x where x.last >= $1 and x.last < $2 for update skip locked) f
                      join postdate.%I m on m.id = f.last and m.due = postdate.id_due(f.last)
                     where r.id = f.id and m.state <> ''superseded''', day_table) using from_id, to_id;
end $$;

revoke execute on all functions in schema postdate from public;
