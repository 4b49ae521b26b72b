-- Version 20: of recurring schedules, what several people do at the same time, files with thousands of them, and what is said of odd input.

-- Makes the schedule or changes it; returns its next nominal time. A change counts from now on. It may be removed meanwhile: then it is made.
create or replace function postdate.recur_store(r postdate.recur, over_too boolean) returns timestamptz language plpgsql as $$
declare
    old postdate.recur;
    now_at timestamptz;
    made boolean;
    upcoming timestamptz;
begin
    loop
        insert into postdate.recur as x (name, cron, zone, plan, anchor, exchange, routing_key, body, content, missed, grace, jitter, dst, overlap, from_at, until_at)
        values (r.name, r.cron, r.zone, r.plan, r.anchor, r.exchange, r.routing_key, r.body, r.content, r.missed, r.grace, r.jitter, r.dst, r.overlap, r.from_at, r.until_at)
            on conflict on constraint recur_name_key do nothing
        returning x.* into old;
        made := found;
        exit when made;
        select x.* into old from postdate.recur x where x.name = r.name for update;
        exit when found; -- else whoever had it locked has removed it
    end loop;
    now_at := clock_timestamp(); -- who had it locked has let its occurrences go by now
    if not made then
        if (old.cron, old.zone, old.exchange, old.routing_key, old.body, old.content, old.missed, old.grace, old.jitter, old.dst, old.overlap, old.from_at, old.until_at)
           is not distinct from (r.cron, r.zone, r.exchange, r.routing_key, r.body, r.content, r.missed, r.grace, r.jitter, r.dst, r.overlap, r.from_at, r.until_at) then
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

-- As before (019_3_recur_set.sql), but one after the other, or two files would make a mixture of both. What is in the file is looked up by name:
-- a JSON text is read from its beginning each time.
create or replace function postdate.recur_apply(schedules json, dry_run boolean default false, prefix text default '')
returns table (change text, name text, fields text[], old jsonb, new jsonb)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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
    if not dry_run then perform pg_advisory_xact_lock(1886352244, -6); end if;
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

-- The same for programs: from {"schedules": {…}}, as one JSON array.
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
    select '[' || coalesce(string_agg(row_to_json(a)::text, ','), '') || ']' into answer from postdate.recur_apply(definitions::json -> 'schedules', dry_run, prefix) a;
exception when data_exception then
    get stacked diagnostics detail = pg_exception_detail, hint = pg_exception_hint;
    refusal := concat_ws(' ', sqlerrm || '.', nullif(detail, ''), nullif(hint, ''));
end $$;

-- --- whose a schedule is that somebody else makes at the same time

-- As before (017_2_recur_ask.sql), but what was not there when its scope was looked at is looked at again.
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
    if operation in ('show', 'preview') then
        select r.exchange into place from postdate.recur r where r.name = recur_do.name;
    else
        select r.exchange into place from postdate.recur r where r.name = recur_do.name for update;
        if fresh and place is not null then
            outcome := 'unmet';
            return;
        end if;
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

create or replace function postdate.recur_ask(operation text, name text, arg text, scope text[], via text, versions text[], fresh boolean,
                                   out answer text, out outcome text, out tag text, out refusal text)
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = auto as $$
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
exception when sqlstate 'PD412' then
    outcome := 'unmet';
when data_exception then
    get stacked diagnostics detail = pg_exception_detail, hint = pg_exception_hint;
    outcome := 'refused';
    refusal := concat_ws(' ', sqlerrm || '.', nullif(detail, ''), nullif(hint, ''));
end $$;

-- --- what is said of odd input

-- What RFC 3339 can write, and what @every can count from.
create function postdate.recur_year(at timestamptz) returns boolean language sql immutable as $$
    select coalesce(isfinite(at) and at >= '1970-01-01 00:00+00' and at < '10000-01-01 00:00+00', true)
$$;

create or replace function postdate.recur_check(r postdate.recur) returns void language plpgsql as $$
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

create or replace function postdate.recur_preview(cron text, zone text default 'UTC', n integer default 10, from_at timestamptz default null, dst text default 'run')
returns table (at timestamptz, local text, mark text) language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    p postdate.cron_plan := postdate.cron_parse(cron);
    z text := postdate.zone_check(zone);
    anchor timestamptz := date_trunc('second', coalesce(from_at, clock_timestamp()));
begin
    if dst is null or dst not in ('run', 'skip') then
        perform postdate.refuse('recur: dst is unknown', 'It is ' || postdate.shown(dst) || '.', 'Allowed are run, skip.');
    elsif not postdate.recur_year(from_at) then
        perform postdate.refuse('recur: from is out of range', 'It is ' || from_at || '.', 'Allowed are the years 1970 to 9999.');
    end if;
    at := coalesce(from_at, clock_timestamp());
    for i in 1..least(n, 1000) loop
        at := postdate.cron_next(p, z, at, anchor, dst is distinct from 'skip');
        exit when at is null;
        local := postdate.zone_shown(z, at);
        mark := postdate.zone_mark(z, at);
        return next;
    end loop;
end $$;

-- What the day has of a change of the clock; null: none. A change at midnight belongs to the day that the clock says afterwards.
create or replace function postdate.zone_mark(zone text, at timestamptz) returns text language plpgsql stable as $$
declare
    day date := at at time zone zone;
    begins timestamptz;
    ends timestamptz;
    change timestamptz;
    by_ interval;
begin
    for begins, ends in values (at - interval '26 hours', at), (at, at + interval '26 hours') loop
        by_ := ((ends at time zone zone) - (begins at time zone zone)) - (ends - begins);
        continue when by_ = '0';
        change := postdate.zone_change(zone, begins, ends);
        continue when (change at time zone zone)::date <> day;
        return 'clock goes ' || case when by_ > '0' then 'forward' else 'back' end || ' to ' || to_char(change at time zone zone, 'HH24:MI')
            || ' at ' || to_char((change at time zone zone) - by_, 'HH24:MI');
    end loop;
    return null;
end $$;

-- As before (016_1_cron.sql), but what it proposes instead of 7-1 is right.
create or replace function postdate.cron_field(expression text, field text, number integer, at integer, text_ text, low integer, high integer, names text,
                                    out matched boolean[], out last_ boolean, out nth text[])
language plpgsql immutable as $$
declare
    item text;
    span text;
    step integer;
    first_ integer;
    final integer;
    sep integer;
    is_dow boolean := field = 'day of week';
    allowed text := 'Allowed are ' || low || ' to ' || high || case when names <> '' then ' or ' || replace(trim(names), ' ', ', ') else '' end
        || ', *, lists (1,5), ranges (1-5) and steps (*/5, 1-9/2)' || case field when 'day of month' then ', and L for the last day'
        when 'day of week' then ', 5L for the last Friday, 2#1 for the first Tuesday' else '' end || '.';
begin
    matched := array_fill(false, array[high + 1], array[0]);
    last_ := false;
    nth := '{}';
    foreach item in array string_to_array(text_, ',') loop
        if item = '' then
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(text_) || ' has an empty place in its list', allowed,
                '"' || trim(both ',' from regexp_replace(text_, ',+', ',', 'g')) || '"');
        end if;
        if field = 'day of month' and item = 'l' then
            last_ := true;
            at := at + 2;
            continue;
        end if;
        if is_dow and item ~ '^([0-9]+|[a-z]+)(l|#[0-9]*)$' then
            sep := case when item ~ 'l$' then length(item) else position('#' in item) end;
            first_ := postdate.cron_value(left(item, sep - 1), names, 0);
            if first_ between 0 and 7 and substr(item, sep) ~ '^(l|#[1-5])$' then
                nth := nth || (first_ % 7 || substr(item, sep));
                at := at + length(item) + 1;
                continue;
            elsif first_ between 0 and 7 then
                perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' is in no month', 'Allowed are #1 to #5, and L for the last.',
                    '"' || left(item, sep - 1) || case when substr(item, sep) ~ '^#[0-9]+$' and substr(item, sep) <> '#0' then 'L' else '#1' end || '"');
            end if;
        end if;
        span := split_part(item, '/', 1);
        if item ~ '/' and (item !~ '^[^/]+/[0-9]{1,9}$' or span !~ '^\*$|-') then
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' is no step',
                'A step follows * or a range, as in */5 or ' || low || '-' || high || '/5.',
                case when item ~ '^[0-9]{1,4}/[0-9]{1,4}$' and span::integer between low and high then '"' || span || '-' || high || '/' || split_part(item, '/', 2) || '"' end);
        end if;
        step := case when item ~ '/' then split_part(item, '/', 2)::integer else 1 end;
        if step = 0 then
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' has a step of 0', 'Allowed are steps from 1.', '"' || span || '/1"');
        end if;
        if span = '*' then
            first_ := low;
            final := case when is_dow then 6 else high end;
        else
            first_ := postdate.cron_value(split_part(span, '-', 1), names, low);
            final := case when span ~ '-' then postdate.cron_value(substr(span, position('-' in span) + 1), names, low) else first_ end;
        end if;
        if first_ is null or final is null then
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' is not understood', allowed,
                case when item = '?' then '"*"'
                     when names <> '' and item ~ '^[a-z]{3,}$' and postdate.cron_value(left(item, 3), names, low) is not null then '"' || left(item, 3) || '"' end);
        elsif first_ < low or first_ > high or final < low or final > high then
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' is out of range', allowed,
                '"' || least(greatest(first_, low), high) || case when span ~ '-' then '-' || greatest(least(final, high), least(greatest(first_, low), high)) else '' end
                    || case when item ~ '/' then '/' || step else '' end || '"');
        elsif first_ > final then
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' begins behind its end', 'A range goes from the lower to the higher one.',
                case when is_dow and first_ = 7 and step = 1 then '"0-' || final || '"'
                     when is_dow and final = 0 then '"' || first_ || '-7"' when step = 1 then '"' || first_ || '-' || case when is_dow then 6 else high end || ',' || low || '-' || final || '"' end);
        end if;
        for v in first_..final by step loop matched[case when is_dow then v % 7 else v end] := true; end loop;
        at := at + length(item) + 1;
    end loop;
end $$;

revoke execute on all functions in schema postdate from public;
