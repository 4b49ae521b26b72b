-- Version 17, part 1 of 2: who changed a schedule, when and how; and a whole set of schedules at once.

create table postdate.recur_change (
    id      bigint generated always as identity primary key,
    name    text not null,        -- of the schedule, which may be gone
    at      timestamptz not null default clock_timestamp(),
    who     text not null,        -- the role in the database, and what it acted for
    what    text not null check (what in ('set', 'pause', 'resume', 'run', 'remove')),
    old     jsonb,                -- the definition before; null: there was none, or it is the same
    new     jsonb,
    message uuid,                 -- run: what was made
    request text                  -- run: which request, so that one that is repeated runs nothing again
);
create index recur_change_name on postdate.recur_change (name, id);
create index recur_change_removed on postdate.recur_change (at) where what = 'remove';

-- Who acts: the role, and whom it acts for, where a program says that (postdate.recur_ask).
create function postdate.recur_who() returns text language sql stable as $$
    select session_user || coalesce(', ' || nullif(current_setting('postdate.via', true), ''), '')
$$;

-- What somebody has set, without what follows from it. A long body is told by its hash.
create function postdate.recur_definition(r postdate.recur) returns jsonb language sql stable as $$
    select jsonb_strip_nulls(jsonb_build_object('cron', r.cron, 'zone', r.zone, 'exchange', r.exchange, 'routing_key', r.routing_key, 'missed', r.missed,
               'grace', postdate.recur_duration_shown(r.grace), 'jitter', postdate.recur_duration_shown(r.jitter), 'dst', r.dst, 'overlap', r.overlap,
               'from', postdate.recur_time_shown(r.from_at), 'until', postdate.recur_time_shown(r.until_at)))
        || jsonb_build_object('headers', r.content -> 'headers', 'properties', r.content -> 'properties')
        || case when octet_length(r.body) > 4000 then jsonb_build_object('body_bytes', octet_length(r.body), 'body_sha256', encode(sha256(r.body), 'hex'))
                when jsonb_typeof(postdate.wire_text(r.body)) = 'string' then jsonb_build_object('body', postdate.wire_text(r.body))
                else jsonb_build_object('body_base64', postdate.wire_text(r.body) -> '!bytes') end
$$;

-- The last twenty of each schedule are kept.
create function postdate.recur_note(name text, what text, old jsonb, new jsonb, message uuid, request text) returns void language plpgsql as $$
begin
    insert into postdate.recur_change (name, who, what, old, new, message, request)
    values (recur_note.name, postdate.recur_who(), recur_note.what, recur_note.old, recur_note.new, recur_note.message, recur_note.request);
    delete from postdate.recur_change c
     where c.name = recur_note.name and c.id <= (select x.id from postdate.recur_change x where x.name = recur_note.name order by x.id desc offset 20 limit 1);
end $$;

-- Fires for what people change, not for what the passing of time does: that leaves changed_at alone.
create function postdate.recur_changed() returns trigger language plpgsql as $$
begin
    case when tg_op = 'INSERT' then
        perform set_config('postdate.recur_made', new.name, true);
        perform postdate.recur_note(new.name, 'set', null, postdate.recur_definition(new), null, null);
    when tg_op = 'DELETE' then
        perform postdate.recur_note(old.name, 'remove', postdate.recur_definition(old), null, null, null);
    when new.paused <> old.paused then
        perform postdate.recur_note(new.name, case when new.paused then 'pause' else 'resume' end, null, null, null, null);
    else
        perform postdate.recur_note(new.name, 'set', postdate.recur_definition(old), postdate.recur_definition(new), null, null);
    end case;
    return null;
end $$;
create trigger recur_changed after insert or update of changed_at or delete on postdate.recur
    for each row execute function postdate.recur_changed();

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
    perform pg_notify('postdate_wake', '');
    return row_id;
end $$;

create or replace function postdate.recur_run(name text) returns uuid language sql security definer set search_path = pg_catalog, pg_temp as $$
    select postdate.recur_run_once(name, null)
$$;

-- For the janitors: what happened to schedules that were removed three months ago is forgotten.
create function postdate.recur_forget() returns bigint language sql as $$
    with gone as (
        select c.name, c.id from postdate.recur_change c
         where c.what = 'remove' and c.at < now() - interval '90 days' and not exists (select from postdate.recur r where r.name = c.name)
         order by c.at limit 1000),
    forgotten as (delete from postdate.recur_change c using gone g where c.name = g.name and c.id <= g.id returning 1)
    select count(*) from forgotten
$$;

create view postdate.recurring_changes as
select c.name, c.at, c.who, c.what, c.old, c.new, c.message from postdate.recur_change c;

-- --- the view and the JSON of 016_3_recur_view.sql, with a version

drop function postdate.recur_try(text, text, jsonb, text[]);
drop function postdate.recur_do(text, text, jsonb, text[]);
drop function postdate.recur_set_object(text, jsonb);
drop function postdate.recur_object(postdate.recurring);

-- version: another one after each change of what somebody has set, and for each schedule of the same name.
create or replace view postdate.recurring as
select r.name, r.cron, r.zone, r.exchange, r.routing_key, r.body, r.content -> 'headers' as headers, nullif(r.content -> 'properties', 'null') as properties,
       r.missed, r.grace, r.jitter, r.dst, r.overlap, r.from_at, r.until_at, r.paused,
       r.nominal as next_at, r.message as next_id, r.last_nominal as last_at, r.last as last_id, o.state as last_state, o.settled_at as last_settled_at,
       o.settled_at - greatest(o.due, r.last_nominal) as last_lateness, r.error, r.created_at, r.changed_at, r.changed_by,
       r.id || '-' || to_hex((date_part('epoch', r.changed_at) * 1000000)::bigint) as version
  from postdate.recur r left join lateral postdate.recur_outcome(r.last) o on r.last is not null;

-- In this order, without blanks.
create function postdate.recur_object(r postdate.recurring, with_body boolean) returns text language sql stable as $$
    select left(row_to_json(x)::text, -1) || case
            when not with_body then ''
            when jsonb_typeof(postdate.wire_text(r.body)) = 'string' then ',"body":' || postdate.wire_text(r.body)::text
            else ',"body_base64":' || (postdate.wire_text(r.body) -> '!bytes')::text end || '}'
      from (select r.name, r.cron, r.zone, r.exchange, r.routing_key, r.missed, postdate.recur_duration_shown(r.grace) as grace,
                   postdate.recur_duration_shown(r.jitter) as jitter, r.dst, r.overlap, postdate.recur_time_shown(r.from_at) as "from",
                   postdate.recur_time_shown(r.until_at) as "until", r.paused, postdate.recur_time_shown(r.next_at) as next_at, r.next_id,
                   postdate.recur_time_shown(r.last_at) as last_at, r.last_id, r.last_state,
                   round(extract(epoch from r.last_lateness) * 1000) as last_lateness_ms, r.error,
                   postdate.recur_time_shown(r.created_at) as created_at, postdate.recur_time_shown(r.changed_at) as changed_at, r.changed_by, r.version,
                   r.headers, r.properties) x
$$;

create function postdate.recur_text(o json, field text, fallback text default null) returns text language plpgsql immutable as $$
declare
    kind text := json_typeof(o -> field);
begin
    if kind is null or kind = 'null' then return fallback; end if;
    if kind = 'string' then return o ->> field; end if;
    perform postdate.refuse('recur: ' || field || ' is no string', 'It is ' || postdate.shown((o -> field)::text) || '.', 'Write it in quotes.');
end $$;

-- The definition in a JSON object; more: fields that are somebody else's. "json" is delivered byte for byte.
create function postdate.recur_set_object(name text, o json, more text[] default '{}') returns void language plpgsql as $$
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
    perform postdate.recur_put(postdate.recur_row(name, postdate.recur_text(o, 'cron'), postdate.recur_text(o, 'zone'), postdate.recur_text(o, 'exchange'),
            postdate.recur_text(o, 'routing_key'), body, postdate.recur_text(o, 'missed', 'one'),
            coalesce(postdate.recur_duration('grace', postdate.recur_text(o, 'grace')), '1 minute'),
            coalesce(postdate.recur_duration('jitter', postdate.recur_text(o, 'jitter')), '0'), postdate.recur_text(o, 'dst', 'run'),
            postdate.recur_text(o, 'overlap', 'allow'), postdate.recur_time('from', postdate.recur_text(o, 'from')),
            postdate.recur_time('until', postdate.recur_text(o, 'until'))),
        kind, nullif((o -> 'headers')::jsonb, 'null'), nullif((o -> 'properties')::jsonb, 'null'));
end $$;

-- As before, and written as everywhere else: units once each, largest first.
create or replace function postdate.recur_duration(field text, value text) returns interval language plpgsql immutable as $$
begin
    if value is null then return null; end if;
    if value ~ '^((?=[0-9])([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?|P(?=[0-9]|T[0-9])([0-9]+W)?([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+([.][0-9]+)?S)?)?)$' then
        return value::interval;
    end if;
    raise invalid_datetime_format;
exception when data_exception then
    perform postdate.refuse('recur: ' || field || ' is no duration', 'It is ' || postdate.shown(value) || '.', 'Write 250ms, 90s, 15m, 36h, 30d or ISO 8601 (PT15M).');
end $$;

-- As before, in a language that plans them once: each schedule that is set or listed shows several of them.
create or replace function postdate.recur_duration_shown(value interval) returns text language plpgsql immutable as $$
declare
    ms bigint := date_part('epoch', value) * 1000;
begin
    return case when ms % 86400000 = 0 and ms > 0 then ms / 86400000 || 'd' when ms % 3600000 = 0 and ms > 0 then ms / 3600000 || 'h'
                when ms % 60000 = 0 and ms > 0 then ms / 60000 || 'm' when ms % 1000 = 0 then ms / 1000 || 's' else ms || 'ms' end;
end $$;

create or replace function postdate.recur_time_shown(at timestamptz) returns text language plpgsql immutable as $$
begin
    return to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
end $$;

-- As before, for who asks four times for each occurrence.
create or replace function postdate.recur_due(name text, jitter interval, nominal timestamptz) returns timestamptz language plpgsql immutable as $$
begin
    if jitter = '0' then return nominal; end if;
    return nominal + ((hashtextextended(name || '@' || date_part('epoch', nominal), 0) & 2147483647)
                      % greatest((date_part('epoch', jitter) * 1000)::bigint, 1)) * interval '1 millisecond';
end $$;
