-- What a zone was like when its next occurrences were computed. A session keeps a zone as it read it first: sessions that began after
-- tzdata was updated see the new rules.
create table postdate.recur_zone (
    zone    text primary key,
    from_at timestamptz not null,
    mark    text not null
);

-- The next nominal time by the rules as they are now. A fixed time is looked for from some hours before: it may have moved to earlier.
create function postdate.recur_again(r postdate.recur, now_at timestamptz) returns timestamptz language sql stable as $$
    select postdate.recur_after(r, greatest(r.passed, case when (r.plan).wild then now_at else r.nominal - interval '3 hours' end))
$$;

-- A schedule, which is locked, gets that time. False: it has it already, or its occurrence is on its way.
create function postdate.recur_anew(r postdate.recur, now_at timestamptz) returns boolean language plpgsql as $$
declare
    upcoming timestamptz := postdate.recur_again(r, now_at);
begin
    if upcoming is not distinct from r.nominal then return false; end if;
    if r.paused then
        update postdate.recur x set nominal = upcoming where x.id = r.id;
        return true;
    end if;
    if postdate.recur_let_go(r, '-infinity') then return false; end if; -- on its way: the janitor carries it on
    perform postdate.recur_step(r, upcoming, now_at, r.grace, r.skipped);
    return true;
end $$;

-- One zone whose mark does not fit any more. Sets busy where it has to be looked at again. Nothing raises but a zone that is not known (22023).
create function postdate.recur_zone_anew(zone text, mark text, now_at timestamptz, out changed integer, out busy boolean, out refused text)
language plpgsql set plan_cache_mode = auto set enable_seqscan = off as $$
declare
    r postdate.recur;
    print text := postdate.zone_print(zone, date_trunc('day', now_at, 'UTC'));
begin
    changed := 0;
    busy := false;
    for r in select x.* from postdate.recur x
              where x.zone = recur_zone_anew.zone and recur_zone_anew.mark is not null and (x.plan).every_s is null and x.nominal > now_at loop
        begin
            continue when postdate.recur_again(r, now_at) is not distinct from r.nominal;
            select x.* into r from postdate.recur x where x.id = r.id and x.nominal > now_at for update skip locked;
            if found then changed := changed + postdate.recur_anew(r, now_at)::integer;
            else busy := true; end if;
        exception when others then
            busy := true;
            if sqlstate not in ('55P03', '40P01') then refused := coalesce(refused, r.name || ': ' || sqlerrm); end if;
        end;
    end loop;
    if not busy then
        insert into postdate.recur_zone as k (zone, from_at, mark) values (recur_zone_anew.zone, date_trunc('day', now_at, 'UTC'), print)
            on conflict on constraint recur_zone_pkey do update set from_at = excluded.from_at, mark = excluded.mark;
    end if;
end $$;

-- For the janitors: has a zone changed since its schedules were computed? After 200 days all of a zone are computed anew, for the mark tells
-- of 400 days only. None is locked that stays as it is. Returns what is worth a line in the log. A zone, or a schedule, that fails stops none
-- of the others. A zone that is not known (tzdata-legacy, since Debian 13) gets the mark '', is said once, and computed anew when it is back.
create function postdate.recur_zones() returns setof text language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = auto set enable_seqscan = off as $$
declare
    z record;
    a record;
    now_at timestamptz := clock_timestamp();
begin
    for z in select d.zone, d.n, d.first_name, k.from_at, k.mark
               from (select x.zone, count(*) as n, min(x.name) as first_name from postdate.recur x where x.zone <> 'UTC' group by 1) d
               left join postdate.recur_zone k on k.zone = d.zone order by d.zone loop
        begin
            continue when z.mark = postdate.zone_print(z.zone, z.from_at) and z.from_at > now_at - interval '200 days';
            a := postdate.recur_zone_anew(z.zone, z.mark, now_at);
            if a.changed > 0 then return next 'recur: the rules of ' || z.zone || ' have changed: ' || a.changed || ' next occurrences recomputed'; end if;
            if a.refused is not null then return next 'recur: the rules of ' || z.zone || ' have changed, and not all next occurrences could be recomputed; the first: ' || a.refused; end if;
        exception
            when invalid_parameter_value then
                insert into postdate.recur_zone as k (zone, from_at, mark) values (z.zone, date_trunc('day', now_at, 'UTC'), '')
                    on conflict on constraint recur_zone_pkey do update set from_at = excluded.from_at, mark = '';
                if z.mark is distinct from '' then
                    return next 'recur: PostgreSQL does not know the time zone ' || z.zone || ' (any more): ' || z.n || ' schedules have no next occurrence, the first is '
                        || z.first_name || '. Install the package that has it (Debian 13: tzdata-legacy), or set another zone';
                end if;
            when others then
                return next 'recur: the time zone ' || z.zone || ' could not be checked: ' || sqlerrm;
        end;
    end loop;
end $$;
