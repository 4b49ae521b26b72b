-- Version 17, part 2 of 2: what command line, HTTP and control queue ask, and `postdate recur apply`.

-- All operations, with a JSON argument. outcome: 'done', 'made' (set: it is new), 'not_found', 'unmet' (the condition), 'exchange' (not for this
-- caller). scope: the exchanges that the caller may use; null: all. versions: of which the schedule must have one, '*' is any; fresh: there
-- must be none of this name. tag: the version that it has now; list: the last name, if there are more.
create function postdate.recur_do(operation text, name text, arg json, scope text[], versions text[], fresh boolean, out answer text, out outcome text, out tag text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    place text;
    rows integer;
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

-- The same for programs: what is wrong with the argument, in one line. via: whom the program acts for. What was refused or not allowed
-- has changed nothing.
create function postdate.recur_ask(operation text, name text, arg text, scope text[], via text, versions text[], fresh boolean,
                                   out answer text, out outcome text, out tag text, out refusal text)
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = auto as $$
declare
    detail text;
    hint text;
    d record;
begin
    perform set_config('postdate.via', coalesce((select 'token "' || t.name || '"' from postdate.token t where 'token ' || t.id = via), via, ''), true);
    d := postdate.recur_do(operation, name, arg::json, scope, versions, fresh);
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

-- Makes the schedules whose names begin with the prefix equal to those of the object {name: definition}: sets them, and removes all others.
-- Returns what differed. A dry run does it all, and takes it back.
create function postdate.recur_apply(schedules json, dry_run boolean default false, prefix text default '')
returns table (change text, name text, fields text[], old jsonb, new jsonb)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    changes jsonb[] := '{}';
    one record;
    before jsonb;
    after jsonb;
    detail text;
    hint text;
begin
    if json_typeof(schedules) is distinct from 'object' then
        perform postdate.refuse('recur: the schedules are no object', 'They are ' || postdate.shown(schedules::text) || '.', 'Write {"schedules": {"name": {"cron": …}, …}}.');
    end if;
    for one in select k.key from json_each(schedules) k group by k.key having count(*) > 1 limit 1 loop
        perform postdate.refuse('recur: ' || postdate.shown(one.key) || ' is given twice', 'Names are unique.', 'Give each schedule once.');
    end loop;
    begin
        for one in select k.key, k.value from json_each(schedules) k order by k.key loop
            if not starts_with(one.key, prefix) then
                perform postdate.refuse('recur: ' || postdate.shown(one.key) || ' does not begin with the prefix', 'The prefix is ' || postdate.shown(prefix) || '.', 'Put it into another file.');
            end if;
            before := (select postdate.recur_definition(r) || jsonb_build_object('paused', r.paused) from postdate.recur r where r.name = one.key for update);
            begin
                perform postdate.recur_set_object(one.key, one.value, '{paused}');
                case coalesce(json_typeof(one.value -> 'paused'), 'null') || coalesce(one.value ->> 'paused', '')
                when 'booleantrue' then perform postdate.recur_pause(one.key);
                when 'booleanfalse' then perform postdate.recur_resume(one.key);
                when 'null' then
                else perform postdate.refuse('recur: paused is neither true nor false', 'It is ' || postdate.shown(one.value ->> 'paused') || '.', 'Leave it out to let it be as it is.');
                end case;
            exception when data_exception then
                get stacked diagnostics detail = pg_exception_detail, hint = pg_exception_hint;
                perform postdate.refuse(postdate.shown(one.key) || ': ' || sqlerrm, detail, hint);
            end;
            after := (select postdate.recur_definition(r) || jsonb_build_object('paused', r.paused) from postdate.recur r where r.name = one.key);
            if before is distinct from after then changes := changes || jsonb_build_object('name', one.key, 'old', before, 'new', after); end if;
        end loop;
        for one in select r.name, postdate.recur_definition(r) as definition from postdate.recur r
                    where starts_with(r.name, prefix) and schedules -> r.name is null order by r.name for update loop
            perform postdate.recur_remove(one.name);
            changes := changes || jsonb_build_object('name', one.name, 'old', one.definition);
        end loop;
        if dry_run then raise sqlstate 'PD000'; end if;
    exception when sqlstate 'PD000' then
        null;
    end;
    return query
    select case when nullif(c -> 'old', 'null') is null then '+' when c -> 'new' is null then '-' else '~' end, c ->> 'name',
           case when nullif(c -> 'old', 'null') is not null and c -> 'new' is not null then array(
               select coalesce(a.key, b.key) from jsonb_each(c -> 'old') a full join jsonb_each(c -> 'new') b on a.key = b.key
                where a.value is distinct from b.value order by 1) end,
           nullif(c -> 'old', 'null'), c -> 'new'
      from unnest(changes) c order by c ->> 'name';
end $$;

-- The same for programs: from {"schedules": {…}}, as one JSON array.
create function postdate.recur_apply_ask(definitions text, dry_run boolean, prefix text, via text, out answer text, out refusal text)
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = auto as $$
declare
    detail text;
    hint text;
    unknown text;
begin
    perform set_config('postdate.via', coalesce(via, ''), true);
    for unknown in select k from json_object_keys(definitions::json) k where k <> 'schedules' limit 1 loop
        perform postdate.refuse('recur: ' || left(unknown, 80) || ' is no field', 'It is beside "schedules".', 'Write {"schedules": {"name": {"cron": …}, …}}.');
    end loop;
    select '[' || coalesce(string_agg(row_to_json(a)::text, ','), '') || ']' into answer from postdate.recur_apply(definitions::json -> 'schedules', dry_run, prefix) a;
exception when data_exception then
    get stacked diagnostics detail = pg_exception_detail, hint = pg_exception_hint;
    refusal := concat_ws(' ', sqlerrm || '.', nullif(detail, ''), nullif(hint, ''));
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
                        'recur_apply', 'recur_remove', 'recur_pause', 'recur_resume', 'recur_run', 'recur_preview', 'recur_upcoming', 'recur_next') loop
            execute format('grant execute on function %s to postdate_producer', f);
        end loop;
    end if;
    if not 'postdate_reader' = any (missing) then
        grant select on postdate.messages, postdate.recurring, postdate.recurring_changes to postdate_reader;
        grant execute on function postdate.message(uuid), postdate.id_due(uuid), postdate.recur_outcome(uuid) to postdate_reader;
        for f in select p.oid::regprocedure from pg_proc p where p.pronamespace = 'postdate'::regnamespace and (starts_with(p.proname, 'wire_') or p.proname in ('recur_preview', 'recur_upcoming', 'recur_next')) loop
            execute format('grant execute on function %s to postdate_reader', f);
        end loop;
    end if;
    return missing;
end $$;

revoke execute on all functions in schema postdate from public;
