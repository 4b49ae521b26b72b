-- Version 22: a time zone that PostgreSQL no longer knows (tzdata-legacy, since Debian 13) harms the schedules in it, and no others.

-- What is wrong with a schedule is noted, and said, by the janitor alone (recur_look).
create or replace function postdate.recur_claim_each(schedules bigint[], ids uuid[]) returns uuid[] language plpgsql strict as $$
declare
    held uuid[];
    r postdate.recur;
    carrier uuid;
begin
    begin
        held := array(select i from unnest(schedules, ids) u (s, i) where exists (select from postdate.recur x where x.id = u.s));
        for r in select x.* from postdate.recur x where x.id = any (schedules) order by x.id for update skip locked loop
            carrier := ids[array_position(schedules, r.id)];
            if postdate.recur_claim_one(r, carrier) then held := array_remove(held, carrier); end if;
        end loop;
        return held;
    exception when others then
        if sqlstate in ('55P03', '40P01') then raise; end if;
    end;
    held := '{}';
    for r in select x.* from postdate.recur x where x.id = any (schedules) order by x.id for update skip locked loop
        begin
            carrier := ids[array_position(schedules, r.id)];
            if not postdate.recur_claim_one(r, carrier) then held := held || carrier; end if;
        exception when others then
            if sqlstate in ('55P03', '40P01') then raise; end if;
            update postdate.recur x set look_at = clock_timestamp() where x.id = r.id;
        end;
    end loop;
    return held;
end $$;

-- As before, but who cancels or moves an occurrence is not refused because the next one cannot be made: the janitor is asked.
create or replace function postdate.recur_skip(schedule bigint, carrier uuid) returns void language plpgsql as $$
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

-- One zone whose mark does not fit any more. Sets busy where it has to be looked at again. Nothing raises but a zone that is not known (22023).
create function postdate.recur_zone_anew(zone text, mark text, now_at timestamptz, out changed integer, out busy boolean, out refused text)
language plpgsql set plan_cache_mode = auto as $$
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
revoke all on function postdate.recur_zone_anew(text, text, timestamptz) from public;

-- As before, but a zone, or a schedule, that fails stops none of the others. A zone that is not known gets the mark '', is said once, and computed
-- anew when it is back.
create or replace function postdate.recur_zones() returns setof text language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = auto as $$
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
            if a.changed > 0 then return next 'recur: the rules of ' || z.zone || ' have changed: ' || a.changed || ' next occurrences computed anew'; end if;
            if a.refused is not null then return next 'recur: the rules of ' || z.zone || ' have changed, and not all next occurrences could be computed anew; the first: ' || a.refused; end if;
        exception
            when invalid_parameter_value then
                insert into postdate.recur_zone as k (zone, from_at, mark) values (z.zone, date_trunc('day', now_at, 'UTC'), '')
                    on conflict on constraint recur_zone_pkey do update set from_at = excluded.from_at, mark = '';
                if z.mark is distinct from '' then
                    return next 'recur: PostgreSQL does not know the time zone ' || z.zone || ' (any more): ' || z.n || ' schedules have no next occurrence, the first is '
                        || z.first_name || '. Install the package that has it (Debian 13: tzdata-legacy), or set another zone';
                end if;
            when others then
                return next 'recur: the time zone ' || z.zone || ' could not be looked at: ' || sqlerrm;
        end;
    end loop;
end $$;
