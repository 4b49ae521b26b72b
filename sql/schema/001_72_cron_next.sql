-- When a cron expression matches next.

-- The longest possible wait is 40 years, for a weekday on 29 February across the year 2100; with a field of years, until the last of them.
create function postdate.cron_local(p postdate.cron_plan, t bigint) returns bigint language plpgsql immutable as $$
declare
    s integer := (t % 86400 + 86400) % 86400; -- before 1970, where a zone is behind UTC, t is negative
    day date := date '1970-01-01' + ((t - s) / 86400)::integer;
    y integer := date_part('year', day);
    mo integer := date_part('month', day);
    d integer := date_part('day', day);
    h integer := s / 3600;
    mi integer := s / 60 % 60;
    k integer;
    found_s integer;
    first_ date;
    len integer;
    today boolean := true;
begin
    s := s % 60;
    -- the first time of day from h:mi:s on; none: found_s stays null
    if get_bit(p.hours, h) = 1 then
        if get_bit(p.minutes, mi) = 1 then
            k := position(B'1' in substring(p.seconds from s + 1));
            if k > 0 then found_s := h * 3600 + mi * 60 + s + k - 1; end if;
        end if;
        if found_s is null then
            k := position(B'1' in substring(p.minutes from mi + 2));
            if k > 0 then found_s := h * 3600 + (mi + k) * 60 + position(B'1' in p.seconds) - 1; end if;
        end if;
    end if;
    if found_s is null then
        k := position(B'1' in substring(p.hours from h + 2));
        if k > 0 then found_s := (h + k) * 3600 + (position(B'1' in p.minutes) - 1) * 60 + position(B'1' in p.seconds) - 1; end if;
    end if;
    if found_s is null then
        d := d + 1;
        today := false;
    end if;
    for i in 1..case when p.years is null then 600 else 3000 end loop
        if y > 2199 and p.years is not null then return null; end if;
        if y < 1970 or get_bit(p.years, y - 1970) = 0 then
            y := y + 1;
            mo := 1;
            d := 1;
            continue;
        end if;
        if get_bit(p.months, mo - 1) = 1 then
            first_ := make_date(y, mo, 1);
            len := case when mo = 2 then case when y % 4 = 0 and (y % 100 <> 0 or y % 400 = 0) then 29 else 28 end
                        when mo in (4, 6, 9, 11) then 30 else 31 end;
            -- 1 January 1970 was a Thursday
            k := position(B'1' in substring(p.days from ((len - 28) * 7 + (first_ - date '1970-01-01' + 70004) % 7) * 31 + d for len - d + 1));
            if k > 0 then
                if not today or k > 1 or i > 1 then
                    found_s := (position(B'1' in p.hours) - 1) * 3600 + (position(B'1' in p.minutes) - 1) * 60 + position(B'1' in p.seconds) - 1;
                end if;
                return (first_ - date '1970-01-01' + d + k - 2)::bigint * 86400 + found_s;
            end if;
        end if;
        d := 1;
        mo := mo + 1;
        if mo > 12 then
            mo := 1;
            y := y + 1;
        end if;
    end loop;
    return null;
end $$;

-- The first nominal time after `after`; null: none within decades. anchor: what @every counts from. run_gap: a fixed time in a gap runs right after it.
create function postdate.cron_next(p postdate.cron_plan, zone text, after timestamptz, anchor timestamptz default 'epoch', run_gap boolean default true)
returns timestamptz language plpgsql stable as $$
declare
    here timestamp;                 -- the clock on the wall
    l timestamp;
    from_s bigint;
    found_s bigint;
    late timestamptz;               -- PostgreSQL's choice: of a repeated time the second, of one in a gap as if the gap were not
    back timestamp;
    early timestamptz;
    fold timestamptz;               -- `after` is in the first pass of a repeated hour, which ends then
    change timestamptz;
begin
    if p.every_s is not null then
        return anchor + (floor(date_part('epoch', after - anchor) / p.every_s)::bigint + 1) * p.every_s * interval '1 second';
    end if;
    here := after at time zone zone;
    from_s := floor(date_part('epoch', here))::bigint + 1;
    if p.wild then
        late := here at time zone zone;
        if late > after then fold := postdate.zone_change(zone, after, late); end if;
    end if;
    for i in 1..1000 loop
        found_s := postdate.cron_local(p, from_s);
        if found_s is null then return null; end if;
        l := timestamp 'epoch' + found_s * interval '1 second';
        late := l at time zone zone;
        back := late at time zone zone;
        if back <> l then
            change := postdate.zone_change(zone, late - (back - l) - interval '1 second', late);
            if run_gap and not p.wild and change > after and (change at time zone zone) - l < interval '3 hours' then return change; end if;
            from_s := date_part('epoch', change at time zone zone);
            continue;
        end if;
        back := ((late - interval '24 hours') at time zone zone) + interval '24 hours'; -- what the clock would say without a change
        early := late;
        if back > l then
            early := late - (back - l);
            if (early at time zone zone) <> l then early := late; end if;
        end if;
        if early <= after and early < late then
            if p.wild then
                early := late;
            else -- ran already: on to the end of the repeated time
                from_s := date_part('epoch', postdate.zone_change(zone, early, late) at time zone zone) + date_part('epoch', late - early);
                continue;
            end if;
        end if;
        if fold is not null and early >= fold then
            from_s := date_part('epoch', fold at time zone zone);
            after := fold - interval '1 microsecond';
            fold := null;
            continue;
        end if;
        return early;
    end loop;
    return null;
end $$;

-- The first time after `after` at which this expression matches in this zone.
create function postdate.recur_next(cron text, zone text, after timestamptz, dialect text default null) returns timestamptz
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select postdate.cron_next(postdate.cron_parse(cron, dialect), postdate.zone_check(zone), after)
$$;
