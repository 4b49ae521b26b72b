-- Schedules that janitors check, and their continuation after an occurrence was cancelled, moved or dropped.

-- The row that carries a schedule stops doing so. Not `due` yet: it is never delivered. Due already: delivered, as it was. Is it delivered?
create function postdate.recur_let_go(r postdate.recur, now_at timestamptz) returns boolean
language plpgsql set plan_cache_mode = force_custom_plan as $$
begin
    if r.message is null then return false; end if;
    if r.nominal <= now_at then
        update postdate.message m set recur = null, late_at = null
         where m.id = r.message and m.state = 'scheduled' and m.owner is null and m.late_at >= now_at;
        if found then return true; end if;
    end if;
    update postdate.message m
       set state = 'superseded', settled_at = clock_timestamp(), body = '', properties = '', properties_json = null, error = null, recur = null, late_at = null
     where m.id = r.message and m.state = 'scheduled' and m.owner is null and m.recur = r.id;
    if found then return false; end if;
    -- it was claimed, but the schedule could not continue
    return exists (select from postdate.message m where m.id = r.message and m.state not in ('cancelled', 'superseded'));
end $$;

-- Will the row continue the schedule? 'waits', 'locked' (it is being claimed), 'gone'.
create function postdate.recur_carrier(id uuid, schedule bigint, out standing text, out late_at timestamptz)
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    m record;
begin
    standing := 'gone';
    if id is null then return; end if;
    select x.state, x.owner, x.recur, x.late_at into m from postdate.message x
     where x.id = recur_carrier.id for update skip locked;
    if found and m.recur = schedule and m.state = 'scheduled' and m.owner is null then
        standing := 'waits';
        late_at := m.late_at;
    elsif not found and exists (select from postdate.message x where x.id = recur_carrier.id) then
        standing := 'locked';
    end if;
end $$;

-- The next occurrence was claimed, or cancelled.
create function postdate.recur_pass_by(r postdate.recur, gone boolean) returns postdate.recur language plpgsql as $$
begin
    r.passed := r.nominal;
    if gone then
        r.last := r.message;
        r.last_nominal := r.nominal;
        r.earliest := case when r.jitter <> '0' then postdate.id_due(r.message) end;
    end if;
    return r;
end $$;

-- Checks one schedule, which is locked. Returns the line to log, if any.
create function postdate.recur_look_at(r postdate.recur, now_at timestamptz) returns text language plpgsql as $$
declare
    m record := postdate.recur_carrier(r.message, r.id);
    gone boolean := m.standing = 'gone' and r.message is not null;
    was_from timestamptz := r.run_from;
    upcoming timestamptz := r.nominal;
begin
    if m.standing = 'locked' then
        update postdate.recur x set look_at = now_at + interval '10 s' where x.id = r.id; -- it is being claimed
        return null;
    end if;
    if gone then
        r := postdate.recur_pass_by(r, true);
        r.skipped := 0;
        upcoming := postdate.recur_after(r, r.nominal);
    end if;
    r := postdate.recur_run(r, now_at);
    if r.run_from <> was_from then upcoming := postdate.recur_after(r, r.passed); end if;
    if r.paused then
        update postdate.recur x set nominal = upcoming, passed = r.passed, run_from = r.run_from, runs = r.runs, earliest = r.earliest, look_at = null where x.id = r.id;
        return null;
    elsif m.standing = 'waits' and m.late_at >= now_at and upcoming = r.nominal then
        update postdate.recur x set look_at = greatest(m.late_at, now_at + interval '1 s') where x.id = r.id;
        return null;
    end if;
    perform postdate.recur_key(r);
    if m.standing = 'waits' then perform postdate.recur_let_go(r, '-infinity'); end if;
    return coalesce(postdate.recur_step(r, upcoming, now_at, r.grace, case when r.run_from = was_from then r.skipped else 0 end),
        case when gone then 'recur ' || r.name || ': its next occurrence was missing and was created' end);
end $$;

-- The safety net, for the janitors: schedules whose occurrence was missed, or that nothing carries on. A row for each that it saw to, with
-- something for the log, perhaps.
create function postdate.recur_look(most integer) returns setof text
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = auto set enable_seqscan = off as $$
declare
    r postdate.recur;
    now_at timestamptz := clock_timestamp();
begin
    for r in select x.* from postdate.recur x where x.look_at <= now_at order by x.look_at limit most for update skip locked loop
        begin
            return next postdate.recur_look_at(r, now_at);
        exception when others then
            if sqlstate in ('55P03', '40P01') then
                perform set_config('postdate.locked_out', 'yes', true); -- the others wait for no locked day
                update postdate.recur x set look_at = now_at + interval '5 s' where x.id = r.id;
                return next null;
                continue;
            end if;
            update postdate.recur x set error = left(sqlerrm, 500), look_at = now_at + interval '1 minute' where x.id = r.id and x.error is distinct from left(sqlerrm, 500);
            if found then return next 'recur ' || r.name || ': cannot create its next occurrence: ' || sqlerrm;
            else update postdate.recur x set look_at = now_at + interval '1 minute' where x.id = r.id; end if;
        end;
        exit when clock_timestamp() > now_at + interval '1 s'; -- what was made is to be claimed in time; the caller comes again
    end loop;
end $$;

-- Its occurrence was cancelled or moved by hand: the schedule goes on. What was moved is its last one then. If somebody has it locked, he
-- sees to it. Nobody is refused because the next one cannot be made: the janitor is asked.
create function postdate.recur_skip(schedule bigint, carrier uuid) returns void language plpgsql as $$
declare
    r postdate.recur;
    latest uuid := postdate.moved_latest(carrier);
begin
    select x.* into r from postdate.recur x where x.id = schedule and x.message = carrier for update skip locked;
    if not found then return; end if;
    r.passed := r.nominal;
    if latest <> carrier then
        r.last := latest;
        r.last_nominal := r.nominal;
    end if;
    perform postdate.recur_step(r, postdate.recur_after(r, r.nominal), clock_timestamp(), r.grace, 0);
exception when others then
    if sqlstate in ('55P03', '40P01') then raise; end if;
    update postdate.recur x set look_at = clock_timestamp() where x.id = schedule;
end $$;

-- Before a day of messages is dropped: records how the last occurrences in it ended.
create function postdate.recur_keep(partition text) returns void language plpgsql as $$
declare
    begins timestamp := to_date(substr(partition, 9), 'YYYYMMDD');
    ends timestamp := begins + case when length(partition) = 14 then interval '1 month' else interval '1 day' end;
begin
    -- a plain row was delivered, or its day would be kept
    execute format('update postdate.recur r set kept = f.last, kept_state = case when m.next_at is null then ''delivered'' else m.state end,
                           kept_at = case when m.next_at is null then (select b.settled_at from postdate.batch b where b.to_id >= m.id order by b.to_id limit 1) else m.settled_at end
                      from (select x.id, x.last from postdate.recur x where x.last >= $1 and x.last < $2 for update skip locked) f
                      join postdate.%I m on m.id = f.last
                     where r.id = f.id and m.state <> ''superseded''', partition) using postdate.id_floor(begins at time zone 'UTC'), postdate.id_floor(ends at time zone 'UTC');
end $$;
