-- The claim of a message that carries a schedule makes the next one.

create function postdate.recur_leave_out(carrier uuid, now_at timestamptz) returns void
language sql set plan_cache_mode = force_custom_plan as $$
    update postdate.message m
       set state = 'cancelled', settled_at = now_at, body = '', properties = '', properties_json = null, recur = null, late_at = null,
           error = 'left out: the previous occurrence is not done yet'
     where m.id = carrier;
$$;

create function postdate.recur_claim_one(r postdate.recur, carrier uuid) returns boolean language plpgsql as $$
declare
    now_at timestamptz := clock_timestamp();
begin
    if r.message is distinct from carrier then return true; end if;
    r.passed := r.nominal;
    if r.overlap = 'skip' and r.last is not null and postdate.recur_waits(r.last) then
        perform postdate.recur_leave_out(carrier, now_at);
        perform postdate.recur_step(r, postdate.recur_after(r, r.nominal), now_at, r.grace, r.skipped + 1);
        return false;
    end if;
    r.last := carrier;
    r.last_nominal := r.nominal;
    r.earliest := case when r.jitter <> '0' then postdate.id_due(carrier) end;
    perform postdate.recur_step(r, postdate.recur_after(r, r.nominal), now_at, r.grace, 0);
    return true;
end $$;

-- Next occurrences are made by the hundred. What is simple, one statement does for all of them: the next one is neither late already nor
-- beyond max_delay, nor did it come before (recur_run), its day is open, and nobody has to be asked whether the one before is done. All others go on one by one
-- (postdate.recur_claim_each). Returns the rows that it carried on. Joins by index only: how many schedules there are changes while the
-- plan is kept.
create function postdate.recur_claim_simple(schedules bigint[], ids uuid[]) returns uuid[] language plpgsql
set enable_hashjoin to off set enable_mergejoin to off as $$
declare
    now_at timestamptz := clock_timestamp();
    most interval;
    done uuid[];
begin
    select x.max_delay_ms * interval '1 millisecond' into most from postdate.settings x;
    with mine as materialized (
        select x.id, u.carrier, x.nominal as last_nominal, x.name, x.jitter, x.grace, x.exchange, x.until_at, x.runs,
               case when x.jitter <> '0' then postdate.id_due(u.carrier) end as earliest,
               postdate.cron_next(x.plan, x.zone, case when x.from_at > x.nominal then x.from_at - interval '1 microsecond' else x.nominal end,
                                  x.anchor, x.dst = 'run') as nominal
          from (select u.schedule, u.carrier from unnest(schedules, ids) u (schedule, carrier) order by u.schedule offset 0) u,
               -- with its own lock it is looked up for each: a join would read all schedules where statistics say that there are few
               lateral (select * from postdate.recur x where x.id = u.schedule and x.message = u.carrier and x.overlap = 'allow' for update skip locked) x),
    wanted as materialized (
        select m.*, greatest(postdate.recur_due(m.name, m.jitter, m.nominal), m.earliest) as want from mine m
         where m.nominal <= coalesce(m.until_at, 'infinity') and (m.runs is null or not m.runs @> m.nominal)),
    timed as materialized (
        select w.*, postdate.due_round(w.want, now_at) as at from wanted w where w.want + w.grace >= now_at and w.want <= now_at + most),
    day as materialized (
        select d.day from (select distinct date_trunc('day', t.at, 'UTC') as day from timed t) d where postdate.recur_day_open(d.day)),
    made as materialized (
        select t.*, postdate.id_make(t.at, (select cell from postdate.settings)) as row_id from timed t where date_trunc('day', t.at, 'UTC') = any (array(select d.day from day d))),
    stored as (
        insert into postdate.message (due, next_at, created_at, id, hold, exchange, routing_key, key, properties, properties_json, body, recur, late_at)
        select m.at, m.at, now_at, m.row_id, 'g', x.exchange, x.routing_key, 'recur/' || x.name, '',
               jsonb_set(x.content, '{headers}', x.content -> 'headers' || jsonb_build_object('x-postdate-recur', x.name,
                   'x-postdate-nominal', (date_part('epoch', m.nominal) * 1000)::bigint)),
               x.body, x.id, postdate.recur_late_at(m.want, x.grace)
          from made m join postdate.recur x on x.id = m.id),
    keyed as (
        update postdate.key k set due = f.at, id = f.row_id
          from (select x.exchange, x.key, m.at, m.row_id from made m
                  join postdate.key x on x.exchange = m.exchange and x.key = 'recur/' || m.name for update of x skip locked) f
         where k.exchange = f.exchange and k.key = f.key),
    carried as (
        update postdate.recur x
           set nominal = m.nominal, skipped = 0, message = m.row_id, last = m.carrier, last_nominal = m.last_nominal, passed = m.last_nominal,
               earliest = m.earliest, error = null, look_at = least(m.want + m.grace, greatest(m.want, now_at) + interval '30 s')
          from made m where x.id = m.id)
    select array_agg(m.carrier) into done from made m;
    return coalesce(done, '{}');
end $$;

-- One by one, so that one schedule's error harms no other. A lock is the caller's.
-- What is wrong with a schedule is noted, and said, by the janitor alone (recur_look).
create function postdate.recur_claim_each(schedules bigint[], ids uuid[]) returns uuid[] language plpgsql as $$
declare
    held uuid[] := array(select i from unnest(schedules, ids) u (s, i) where exists (select from postdate.recur x where x.id = u.s));
    r postdate.recur;
    carrier uuid;
begin
    for r in select x.* from postdate.recur x where x.id = any (schedules) order by x.id for update skip locked loop
        carrier := ids[array_position(schedules, r.id)];
        begin
            if postdate.recur_claim_one(r, carrier) then held := array_remove(held, carrier); end if;
        exception when others then
            if sqlstate in ('55P03', '40P01') then raise; end if;
            update postdate.recur x set look_at = clock_timestamp() where x.id = r.id;
            held := array_remove(held, carrier);
        end;
    end loop;
    return held;
end $$;

-- For a claim: makes the next occurrences of those that it is about to take. Returns those that must not be taken: they were left out,
-- or their schedule is being changed. Never fails, and waits once at most: where something was locked, days that are locked are gone
-- around. What cannot be made now is the janitor's next task (postdate.recur_look).
create function postdate.recur_claim(schedules bigint[], ids uuid[]) returns uuid[]
language plpgsql strict set plan_cache_mode = auto set enable_seqscan = off as $$
declare
    done uuid[];
begin
    for attempt in 1..2 loop
        begin
            begin
                done := postdate.recur_claim_simple(schedules, ids);
            exception when others then
                if sqlstate in ('55P03', '40P01') then raise; end if;
                done := '{}';
            end;
            if cardinality(done) = cardinality(ids) then return '{}'; end if;
            return (select postdate.recur_claim_each(array_agg(u.s), array_agg(u.i)) from unnest(schedules, ids) u (s, i) where u.i <> all (done));
        exception when lock_not_available or deadlock_detected then
            perform set_config('postdate.locked_out', 'yes', true);
        end;
    end loop;
    update postdate.recur x set look_at = clock_timestamp()
      from (select f.id from postdate.recur f where f.id = any (schedules) order by f.id for update skip locked) f
     where x.id = f.id;
    return '{}';
exception when others then
    return '{}';
end $$;
