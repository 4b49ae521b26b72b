-- Next occurrences are made by the hundred. What is simple, one statement does for all of them: the next one is neither late already nor
-- beyond max_delay, and nobody has to be asked whether the one before is done. All others go on one by one (postdate.recur_claim_each).

-- A row of postdate.forecast_change for all that it makes, instead of a trigger's row for each. Returns the rows that it carried on. Joins by
-- index only: how many schedules there are changes while the plan is kept.
create function postdate.recur_claim_simple(schedules bigint[], ids uuid[]) returns uuid[] language plpgsql
set enable_hashjoin to off set enable_mergejoin to off as $$
declare
    now_at timestamptz := clock_timestamp();
    most interval;
    wake interval;
    done uuid[];
    soonest timestamptz;
    noted text := coalesce(current_setting('postdate.forecast_noted', true), '');
begin
    select x.max_delay_ms * interval '1 millisecond', x.wake_ms * interval '1 millisecond' into most, wake from postdate.settings x;
    -- back to what it was afterwards; an error undoes it
    perform set_config('postdate.forecast_noted', 'yes', true);
    with mine as materialized (
        select x.id, u.carrier, x.nominal as last_nominal, x.name, x.jitter, x.grace, x.exchange, x.until_at,
               postdate.cron_next(x.plan, x.zone, case when x.from_at > x.nominal then x.from_at - interval '1 microsecond' else x.nominal end,
                                  x.anchor, x.dst = 'run') as nominal
          from unnest(schedules, ids) u (schedule, carrier) join postdate.recur x on x.id = u.schedule and x.message = u.carrier
         where x.overlap = 'allow'
         order by x.id
           for update of x skip locked),
    wanted as materialized (
        select m.*, postdate.recur_due(m.name, m.jitter, m.nominal) as want from mine m where m.nominal <= coalesce(m.until_at, 'infinity')),
    timed as materialized (
        select w.*, postdate.due_round(w.want, now_at) as at from wanted w where w.want + w.grace >= now_at and w.want <= now_at + most),
    made as materialized (
        select t.*, postdate.id_make(t.at) as row_id from timed t),
    stored as (
        insert into postdate.message (due, next_at, created_at, id, hold, exchange, routing_key, key, properties, properties_json, body, recur, late_at)
        select m.at, m.at, now_at, m.row_id, 'g', x.exchange, x.routing_key, 'recur/' || x.name, '',
               jsonb_set(x.content, '{headers}', x.content -> 'headers' || jsonb_build_object('x-postdate-recur', x.name,
                   'x-postdate-nominal', (date_part('epoch', m.nominal) * 1000)::bigint)),
               x.body, x.id, m.want + x.grace
          from made m join postdate.recur x on x.id = m.id),
    keyed as (
        update postdate.key k set due = f.at, id = f.row_id
          from (select x.exchange, x.key, m.at, m.row_id from made m
                  join postdate.key x on x.exchange = m.exchange and x.key = 'recur/' || m.name for update of x skip locked) f
         where k.exchange = f.exchange and k.key = f.key),
    foreseen as (
        insert into postdate.forecast_change
        select array_agg(c.exchange), array_agg(c.minute), array_agg(c.n)
          from (select m.exchange, floor(extract(epoch from m.at) / 60)::int as minute, count(*)::int as n from made m group by 1, 2) c
        having count(*) > 0),
    carried as (
        update postdate.recur x
           set nominal = m.nominal, skipped = 0, message = m.row_id, last = m.carrier, last_nominal = m.last_nominal, error = null,
               look_at = least(m.want + m.grace, greatest(m.want, now_at) + interval '30 s')
          from made m where x.id = m.id)
    select array_agg(m.carrier), min(m.want) into done, soonest from made m;
    perform set_config('postdate.forecast_noted', noted, true);
    if soonest < now_at + wake then perform pg_notify('postdate_wake', ''); end if;
    return coalesce(done, '{}');
end $$;

-- What is left is made one by one, as before.
alter function postdate.recur_claim(bigint[], uuid[]) rename to recur_claim_each;
create function postdate.recur_claim(schedules bigint[], ids uuid[]) returns uuid[]
language plpgsql strict set plan_cache_mode = auto as $$
declare
    done uuid[];
begin
    begin
        done := postdate.recur_claim_simple(schedules, ids);
    exception when others then
        if sqlstate in ('55P03', '40P01') then return '{}'; end if; -- a lock: of the next day, say
        done := '{}';
    end;
    if cardinality(done) = cardinality(ids) then return '{}'; end if;
    return (select postdate.recur_claim_each(array_agg(u.s), array_agg(u.i)) from unnest(schedules, ids) u (s, i) where u.i <> all (done));
end $$;
