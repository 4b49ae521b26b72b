-- What command line, HTTP and control queue ask of schedules, in JSON.

-- The fields of a definition.
create function postdate.recur_fields() returns text[] language sql immutable as $$
    select '{cron,dialect,zone,exchange,routing_key,body,body_base64,json,headers,properties,missed,grace,jitter,dst,overlap,from,until}'::text[]
$$;

-- A schedule as a member of a file's "schedules" (001_82_recur_apply.sql). Its values are carried as text: a number stays what it is.
create function postdate.recur_member(r postdate.recurring) returns text language sql stable as $$
    select to_json(r.name)::text || ':{' || string_agg(to_json(f.key)::text || ':' || f.value::text, ',') || '}'
      from json_each(postdate.recur_object(r, true)::json) f
     where f.key = any (postdate.recur_fields() || 'paused'::text) and json_typeof(f.value) <> 'null'
$$;

-- The definition in a JSON object; more: fields that are somebody else's. "json" is delivered byte for byte.
create function postdate.recur_parse(name text, o json, more text[] default '{}') returns postdate.recur language plpgsql as $$
declare
    known text[] := postdate.recur_fields();
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
            'Allowed are cron, dialect, zone, exchange, routing_key, body or body_base64 or json, headers, properties, missed, grace, jitter, dst, overlap, from, until'
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
            postdate.recur_time('until', postdate.recur_text(o, 'until')), postdate.recur_text(o, 'dialect')),
        kind, nullif((o -> 'headers')::jsonb, 'null'), nullif((o -> 'properties')::jsonb, 'null'));
end $$;

-- All operations, with a JSON argument. outcome: 'done', 'made' (set: it is new), 'not_found', 'unmet' (the condition), 'exchange' (not for this
-- caller). scope: the exchanges that the caller may use; null: all; what is beyond it is not locked. versions: of which the schedule must have one,
-- '*' is any; fresh: there must be none of this name. tag: the version that it has now; list: the last name, if there are more;
-- export, which is not for a scope: the name of the one after "after", if there is one.
-- What was not there when its scope was looked at is looked at again.
create function postdate.recur_do(operation text, name text, arg json, scope text[], versions text[], fresh boolean, out answer text, out outcome text, out tag text)
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
                                              postdate.recur_time('from', arg ->> 'from'), coalesce(arg ->> 'dst', 'run'), arg ->> 'dialect') p) t;
        return;
    elsif operation = 'export' then
        select postdate.recur_member(r), r.name into answer, tag from postdate.recurring r
         where starts_with(r.name, coalesce(arg ->> 'prefix', '')) and r.name > coalesce(arg ->> 'after', '') order by r.name limit 1;
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
    if place is null or place <> all (coalesce(scope, array[place])) then
        if versions is not null then
            outcome := 'unmet';
            return;
        elsif operation <> 'set' then
            outcome := 'not_found';
            return;
        elsif place is not null then
            outcome := 'exchange';
            return;
        end if;
    elsif operation not in ('show', 'preview') and fresh then
        outcome := 'exists';
        return;
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
        perform postdate.recur_store(postdate.recur_parse(name, arg), false);
        if current_setting('postdate.recur_made') = name then
            outcome := 'made';
        elsif fresh or (absent and scope is not null) then
            raise sqlstate 'PD409'; -- somebody else made it just now, perhaps beyond the scope
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

-- The same for programs (sql/operate/ask.h). via: whom the program acts for; said: for people, what is wrong with the argument or why nothing was
-- done. What was refused or not allowed has changed nothing.
create function postdate.recur_ask(operation text, name text, arg text, scope text[], via text, versions text[], fresh boolean,
                                   out answer text, out outcome text, out tag text, out said text)
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = auto set enable_seqscan = off as $$
declare
    detail text;
    hint text;
    d record;
begin
    perform set_config('postdate.via', coalesce((select 'token "' || t.name || '"' from postdate.token t where 'token ' || t.id = via), via, ''), true);
    loop
        begin
            d := postdate.recur_do(operation, name, arg::json, scope, versions, fresh);
            exit;
        exception when sqlstate 'PD409' then
            null; -- it is there now, and is looked at
        end;
    end loop;
    answer := d.answer;
    outcome := d.outcome;
    tag := d.tag;
    said := case outcome when 'not_found' then format('there is no schedule "%s"', name)
                         when 'exists' then format('schedule "%s" exists already', name)
                         when 'unmet' then format('schedule "%s" was changed or removed: show it, and decide again', name)
                         when 'exchange' then format('schedule "%s" delivers, or would deliver, to an exchange that the token does not list', name) end;
exception when data_exception then
    get stacked diagnostics detail = pg_exception_detail, hint = pg_exception_hint;
    outcome := 'refused';
    said := concat_ws(' ', sqlerrm || '.', nullif(detail, ''), nullif(hint, ''));
end $$;
