-- Version 22: of recurring schedules, lengths before any regular expression, scopes before any lock, and to SQL users nothing of what others send.

-- Texts that are looked at letter by letter are short: a regular expression over megabytes takes seconds of a worker.
create function postdate.recur_short(field text, value text) returns void language plpgsql immutable as $$
begin
    if octet_length(value) > 1000 then
        perform postdate.refuse('recur: ' || field || ' is too long', 'It has ' || octet_length(value) || ' bytes.', 'Allowed are up to 1000.');
    end if;
end $$;

alter function postdate.cron_parse(text) rename to cron_read;
create function postdate.cron_parse(cron text) returns postdate.cron_plan language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    perform postdate.recur_short('cron', cron);
    return postdate.cron_read(cron);
end $$;

alter function postdate.zone_check(text) rename to zone_find;
create function postdate.zone_check(zone text) returns text language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    perform postdate.recur_short('zone', zone);
    return postdate.zone_find(zone);
end $$;

-- What is base64 comes out again as it went in.
create function postdate.base64_body(value text) returns bytea language plpgsql immutable as $$
declare
    body bytea;
begin
    body := decode(value, 'base64');
    if replace(encode(body, 'base64'), E'\n', '') = value then return body; end if;
    raise invalid_parameter_value;
exception when invalid_parameter_value then
    perform postdate.refuse('recur: body_base64 is not base64', 'It is ' || postdate.shown(value) || '.', 'Write base64 with padding, on one line.');
end $$;

-- As before (017_1_recur_history.sql, 016_3_recur_view.sql, 019_3_recur_set.sql), but for the lengths.
create or replace function postdate.recur_text(o json, field text, fallback text default null) returns text language plpgsql immutable as $$
declare
    kind text := json_typeof(o -> field);
begin
    if kind is null or kind = 'null' then return fallback; end if;
    if kind = 'string' and field not in ('body', 'body_base64') then perform postdate.recur_short(field, o ->> field); end if;
    if kind = 'string' then return o ->> field; end if;
    perform postdate.refuse('recur: ' || field || ' is no string', 'It is ' || postdate.shown((o -> field)::text) || '.', 'Write it in quotes.');
end $$;

create or replace function postdate.recur_duration(field text, value text) returns interval language plpgsql immutable as $$
begin
    if value is null then return null; end if;
    perform postdate.recur_short(field, value);
    if value ~ '^((?=[0-9])([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?|P(?=[0-9]|T[0-9])([0-9]+W)?([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+([.][0-9]+)?S)?)?)$' then
        return value::interval;
    end if;
    raise invalid_datetime_format;
exception when invalid_datetime_format or datetime_field_overflow or interval_field_overflow then
    perform postdate.refuse('recur: ' || field || ' is no duration', 'It is ' || postdate.shown(value) || '.', 'Write 250ms, 90s, 15m, 36h, 30d or ISO 8601 (PT15M).');
end $$;

create or replace function postdate.recur_time(field text, value text) returns timestamptz language plpgsql immutable as $$
begin
    perform postdate.recur_short(field, value);
    if value is null or value ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$' then return value::timestamptz; end if;
    raise invalid_datetime_format;
exception when invalid_datetime_format or datetime_field_overflow or invalid_time_zone_displacement_value then
    perform postdate.refuse('recur: ' || field || ' is no time', 'It is ' || postdate.shown(value) || '.', 'Write RFC 3339 with an offset, such as 2026-11-22T08:00:00Z.');
end $$;

create or replace function postdate.recur_draft(r postdate.recur, body_kind "char", headers jsonb, properties jsonb) returns postdate.recur language plpgsql as $$
declare
    s postdate.settings;
    d postdate.draft;
    now_at timestamptz := clock_timestamp();
begin
    select * into strict s from postdate.settings;
    perform postdate.recur_short('name', r.name);
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

create or replace function postdate.recur_parse(name text, o json, more text[] default '{}') returns postdate.recur language plpgsql as $$
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
    else
        body := postdate.base64_body(o ->> 'body_base64');
    end if;
    return postdate.recur_draft(postdate.recur_row(name, postdate.recur_text(o, 'cron'), postdate.recur_text(o, 'zone'), postdate.recur_text(o, 'exchange'),
            postdate.recur_text(o, 'routing_key'), body, postdate.recur_text(o, 'missed', 'one'),
            coalesce(postdate.recur_duration('grace', postdate.recur_text(o, 'grace')), '1 minute'),
            coalesce(postdate.recur_duration('jitter', postdate.recur_text(o, 'jitter')), '0'), postdate.recur_text(o, 'dst', 'run'),
            postdate.recur_text(o, 'overlap', 'allow'), postdate.recur_time('from', postdate.recur_text(o, 'from')),
            postdate.recur_time('until', postdate.recur_text(o, 'until'))),
        kind, nullif((o -> 'headers')::jsonb, 'null'), nullif((o -> 'properties')::jsonb, 'null'));
end $$;

-- As before (020_1_recur.sql), but what is beyond the scope is not locked.
create or replace function postdate.recur_do(operation text, name text, arg json, scope text[], versions text[], fresh boolean, out answer text, out outcome text, out tag text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    place text;
    rows integer;
    absent boolean;
    v postdate.recurring;
begin
    outcome := 'done';
    if operation = 'preview' and name is null then
        select '[' || coalesce(string_agg(row_to_json(t)::text, ','), '') || ']' into answer
          from (select postdate.recur_time_shown(p.at) as at, p.local, p.mark
                  from postdate.recur_preview(arg ->> 'cron', coalesce(arg ->> 'zone', 'UTC'), coalesce((arg ->> 'n')::integer, 10),
                                              postdate.recur_time('from', arg ->> 'from'), coalesce(arg ->> 'dst', 'run')) p) t;
        return;
    elsif operation = 'list' then
        rows := coalesce((arg ->> 'limit')::integer, 100);
        select '[' || coalesce(string_agg(postdate.recur_object(l.r, false), ',' order by l.n) filter (where l.n <= rows), '') || ']',
               case when count(*) > rows then max(l.name) filter (where l.n = rows) end into answer, tag
          from (select r, r.name, row_number() over (order by r.name) as n from postdate.recurring r
                 where (scope is null or r.exchange = any (scope)) and r.name > coalesce(arg ->> 'after', '')
                 order by r.name limit rows + 1) l;
        return;
    elsif operation = 'history' then
        -- of a schedule that was moved here from an exchange beyond the scope: only what happened since
        select '[' || string_agg(row_to_json(h)::text, ',') || ']' into answer from (
            select postdate.recur_time_shown(c.at) as at, c.who, c.what, c.old, c.new, c.message as id from postdate.recur_change c
             where c.name = recur_do.name
               and (scope is null or (not exists (select from postdate.recur r where r.name = recur_do.name and r.exchange <> all (scope))
                    and c.id > coalesce((select max(x.id) from postdate.recur_change x where x.name = recur_do.name
                                            and (x.old ->> 'exchange' <> all (scope) or x.new ->> 'exchange' <> all (scope))), 0)))
             order by c.id desc) h;
        if answer is null then
            outcome := case when exists (select from postdate.recur r where r.name = recur_do.name and r.exchange = any (coalesce(scope, array[r.exchange]))) then 'done' else 'not_found' end;
            answer := '[]';
        end if;
        return;
    end if;
    select r.exchange into place from postdate.recur r where r.name = recur_do.name;
    if operation not in ('show', 'preview') and place = any (coalesce(scope, array[place])) then
        select r.exchange into place from postdate.recur r where r.name = recur_do.name for update; -- it may be elsewhere by now
    end if;
    if operation not in ('show', 'preview') and fresh and place is not null then
        outcome := 'unmet';
        return;
    end if;
    if place is null or place <> all (coalesce(scope, array[place])) then
        if operation <> 'set' then
            outcome := case when versions is null then 'not_found' else 'unmet' end;
            return;
        elsif place is not null then
            outcome := 'exchange';
            return;
        end if;
    end if;
    if versions is not null then
        select r.version into tag from postdate.recurring r where r.name = recur_do.name;
        if tag is null or tag <> all (case when '*' = any (versions) then array[tag] else versions end) then
            outcome := 'unmet';
            return;
        end if;
    end if;
    if operation = 'set' then
        absent := place is null;
        place := coalesce(arg ->> 'exchange', (select s.exchange from postdate.settings s));
        if place <> all (coalesce(scope, array[place])) then
            outcome := 'exchange';
            return;
        end if;
        perform set_config('postdate.recur_made', '', true);
        perform postdate.recur_set_object(name, arg);
        if current_setting('postdate.recur_made') = name then
            outcome := 'made';
        elsif fresh then
            raise sqlstate 'PD412'; -- somebody else made it just now
        elsif absent and scope is not null then
            raise sqlstate 'PD409'; -- likewise, and it may be beyond the scope
        end if;
    elsif operation = 'pause' then perform postdate.recur_pause(name);
    elsif operation = 'resume' then perform postdate.recur_resume(name);
    elsif operation = 'remove' then
        perform postdate.recur_remove(name);
        answer := 'true';
        return;
    elsif operation = 'run' then
        answer := to_json(postdate.recur_run_once(name, arg ->> 'request'));
        return;
    elsif operation = 'preview' then
        select '[' || coalesce(string_agg(row_to_json(t)::text, ','), '') || ']' into answer
          from (select postdate.recur_time_shown(p.at) as at, p.local, p.mark from postdate.recur_upcoming(name, coalesce((arg ->> 'n')::integer, 10)) p) t;
        return;
    end if;
    select r.* into v from postdate.recurring r where r.name = recur_do.name;
    answer := postdate.recur_object(v, true);
    tag := v.version;
end $$;

-- What recur_apply was (020_1_recur.sql), but for the lock: who makes the schedules equal to a file is alone by a row of postdate.gate (022_gate.sql).
create function postdate.recur_changes(schedules json, dry_run boolean, prefix text)
returns table (change text, name text, fields text[], old jsonb, new jsonb)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    changes jsonb[] := '{}';
    listed jsonb;
    one record;
    changed jsonb;
    detail text;
    hint text;
begin
    dry_run := coalesce(dry_run, false);
    prefix := coalesce(prefix, '');
    if json_typeof(schedules) is distinct from 'object' then
        perform postdate.refuse('recur: the schedules are no object', 'They are ' || postdate.shown(schedules::text) || '.', 'Write {"schedules": {"name": {"cron": …}, …}}.');
    end if;
    for one in select k.key from json_each(schedules) k group by k.key having count(*) > 1 limit 1 loop
        perform postdate.refuse('recur: ' || postdate.shown(one.key) || ' is given twice', 'Names are unique.', 'Give each schedule once.');
    end loop;
    if not dry_run then perform from postdate.gate g where g.name = 'recurring schedules' for update; end if;
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
    select coalesce(jsonb_object_agg(k, true), '{}') into listed from json_object_keys(schedules) k;
    for one in select r.name, postdate.recur_definition(r) as definition from postdate.recur r
                where starts_with(r.name, prefix) and not listed ? r.name order by r.name loop
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

-- What others send is for programs of the owner; a producer sees which fields differ.
create or replace function postdate.recur_apply(schedules json, dry_run boolean default false, prefix text default '')
returns table (change text, name text, fields text[], old jsonb, new jsonb)
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select c.change, c.name, c.fields, c.old - '{body,body_base64,body_bytes,body_sha256,headers,properties}'::text[], c.new from postdate.recur_changes(schedules, dry_run, prefix) c
$$;

create or replace function postdate.recur_apply_ask(definitions text, dry_run boolean, prefix text, via text, out answer text, out refusal text)
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = auto as $$
declare
    detail text;
    hint text;
    unknown text;
begin
    perform set_config('postdate.via', coalesce(via, ''), true);
    if json_typeof(definitions::json) <> 'object' then
        perform postdate.refuse('recur: the file is no object', 'It is ' || postdate.shown(definitions) || '.', 'Write {"schedules": {"name": {"cron": …}, …}}.');
    end if;
    for unknown in select k from json_object_keys(definitions::json) k where k <> 'schedules' limit 1 loop
        perform postdate.refuse('recur: ' || left(unknown, 80) || ' is no field', 'It is beside "schedules".', 'Write {"schedules": {"name": {"cron": …}, …}}.');
    end loop;
    select '[' || coalesce(string_agg(row_to_json(a)::text, ','), '') || ']' into answer from postdate.recur_changes(definitions::json -> 'schedules', dry_run, prefix) a;
exception when data_exception then
    get stacked diagnostics detail = pg_exception_detail, hint = pg_exception_hint;
    refusal := concat_ws(' ', sqlerrm || '.', nullif(detail, ''), nullif(hint, ''));
end $$;
