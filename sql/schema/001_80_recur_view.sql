-- What people see of schedules.

-- How an occurrence stands, wherever it was moved to; also 'refused' (by a consumer, and to come back) and 'dead'. Null: it is not kept.
create function postdate.recur_outcome(id uuid, out state text, out settled_at timestamptz, out due timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    latest uuid := postdate.moved_latest(recur_outcome.id);
    l record;
begin
    select m.state, m.settled_at, m.due into state, settled_at, due from postdate.message_now m
     where m.id = latest;
    for l in select x.died_at, x.message from postdate.lineage x where x.id in (recur_outcome.id, latest) order by x.died_at loop
        if l.died_at is not null then
            state := 'dead';
            return;
        elsif exists (select from postdate.message_now m where m.id = l.message and (m.settled_at is null or m.state = 'failed')) then
            state := 'refused';
        end if;
    end loop;
end $$;

-- version: another one after each change of what somebody has set, and for each schedule of the same name.
-- left_out: occurrences since the last one that was let go, 100: or more. held_by, what rightly keeps the next one back: 'pause', or 'overlap': the last one
-- is not done, so what comes is left out until it is.
create view postdate.recurring as
select r.name, r.cron, r.zone, r.exchange, r.routing_key, r.body, r.content -> 'headers' as headers, nullif(r.content -> 'properties', 'null') as properties,
       r.missed, r.grace, r.jitter, r.dst, r.overlap, r.from_at, r.until_at, r.paused, r.dialect,
       r.nominal as next_at, r.message as next_id, r.last_nominal as last_at, r.last as last_id,
       coalesce(o.state, case when r.kept = r.last then r.kept_state end) as last_state,
       coalesce(o.settled_at, case when r.kept = r.last then r.kept_at end) as last_settled_at,
       coalesce(o.settled_at, case when r.kept = r.last then r.kept_at end) - greatest(coalesce(o.due, postdate.id_due(r.last)), r.last_nominal) as last_lateness,
       r.error, r.created_at, r.changed_at, r.changed_by, r.id || '-' || to_hex((date_part('epoch', r.changed_at) * 1000000)::bigint) as version,
       r.skipped as left_out,
       case when r.paused then 'pause'
            when r.overlap = 'skip' and r.nominal is not null
                 and (o.state in ('failed', 'dead') or r.skipped > 0 and o.state in ('scheduled', 'claimed', 'handed', 'refused')) then 'overlap' end as held_by
  from postdate.recur r left join lateral postdate.recur_outcome(r.last) o on r.last is not null;

create function postdate.recur_preview(cron text, zone text default 'UTC', n integer default 10, from_at timestamptz default null, dst text default 'run',
    dialect text default null)
returns table (at timestamptz, local text, mark text) language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    p postdate.cron_plan := postdate.cron_parse(cron, dialect);
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

-- In this order, without blanks.
create function postdate.recur_object(r postdate.recurring, with_body boolean) returns text language sql stable as $$
    select left(row_to_json(x)::text, -1) || case
            when not with_body then ''
            when jsonb_typeof(postdate.wire_text(r.body)) = 'string' then ',"body":' || postdate.wire_text(r.body)::text
            else ',"body_base64":' || (postdate.wire_text(r.body) -> '!bytes')::text end || '}'
      from (select r.name, r.cron, r.zone, r.dialect, r.exchange, r.routing_key, r.missed, postdate.recur_duration_shown(r.grace) as grace,
                   postdate.recur_duration_shown(r.jitter) as jitter, r.dst, r.overlap, postdate.recur_time_shown(r.from_at) as "from",
                   postdate.recur_time_shown(r.until_at) as "until", r.paused, postdate.recur_time_shown(r.next_at) as next_at, r.next_id,
                   postdate.recur_time_shown(r.last_at) as last_at, r.last_id, r.last_state,
                   round(extract(epoch from r.last_lateness) * 1000) as last_lateness_ms, r.left_out, r.held_by, r.error,
                   postdate.recur_time_shown(r.created_at) as created_at, postdate.recur_time_shown(r.changed_at) as changed_at, r.changed_by, r.version,
                   r.headers, r.properties) x
$$;
