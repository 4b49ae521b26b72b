-- A whole set of schedules at once.

-- What a schedule of the file says of a pause; null: it stays as it is.
create function postdate.recur_paused(o json) returns boolean language plpgsql as $$
begin
    if coalesce(json_typeof(o -> 'paused'), 'null') not in ('boolean', 'null') then
        perform postdate.refuse('recur: paused is neither true nor false', 'It is ' || postdate.shown(o ->> 'paused') || '.', 'Leave it out to keep the current state.');
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

-- Makes the schedules whose names begin with the prefix equal to those of the object {name: definition}: sets them, and removes all others.
-- Returns what differed. One after the other, or two files would make a mixture of both: whoever does so is alone by a row of postdate.gate.
-- What is in the file is looked up by name: a JSON text is read from its beginning each time.
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
            perform postdate.refuse('recur: ' || postdate.shown(one.key) || ' does not begin with the prefix', 'The prefix is ' || postdate.shown(prefix) || '.', 'Move it to another file.');
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
create function postdate.recur_apply(schedules json, dry_run boolean default false, prefix text default '')
returns table (change text, name text, fields text[], old jsonb, new jsonb)
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select c.change, c.name, c.fields, c.old - '{body,body_base64,body_bytes,body_sha256,headers,properties}'::text[], c.new from postdate.recur_changes(schedules, dry_run, prefix) c
$$;

-- The same for programs: from {"schedules": {…}}, as one JSON array.
create function postdate.recur_apply_ask(definitions text, dry_run boolean, prefix text, via text, out answer text, out refusal text)
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = auto set enable_seqscan = off as $$
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
