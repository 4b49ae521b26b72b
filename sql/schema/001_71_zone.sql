-- Time zones are PostgreSQL's (pg_timezone_names).

-- The zone's name as PostgreSQL spells it. Abbreviations are refused: PostgreSQL takes CET for UTC+1 all year.
create function postdate.zone_check(zone text) returns text language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    exact text;
    near text;
begin
    perform postdate.recur_short('zone', zone);
    if zone = 'UTC' then return zone; end if;
    if zone ~ '^[A-Z][A-Za-z]+/[A-Za-z_/-]+$' then -- has a slash and no digit: never an abbreviation or a POSIX rule. Reading all names takes 50 ms.
        begin
            perform now() at time zone zone;
            return zone;
        exception when invalid_parameter_value then
            null;
        end;
    end if;
    select z.name into exact from pg_timezone_names z where lower(z.name collate "C") = lower(zone collate "C") and z.name !~ '^posix' order by z.name = zone desc limit 1;
    if found and (exact in ('UTC', 'GMT') or exact ~ '/') then return exact; end if;
    if exact is null then
        select z.name into near from pg_timezone_names z
         where z.name ~ '/' and z.name !~ '^posix'
           and (lower(z.name collate "C") like '%/' || lower(replace(replace(replace(zone collate "C", ' ', '_'), '%', ''), E'\\', ''))
                or regexp_replace(lower(z.name collate "C"), '[^a-z]', '', 'g') = regexp_replace(lower(zone collate "C"), '[^a-z]', '', 'g')
                or (split_part(lower(z.name collate "C"), '/', 1) = split_part(lower(zone collate "C"), '/', 1) and zone ~ '/' and left(split_part(lower(z.name collate "C"), '/', 2), 4) = left(split_part(lower(zone collate "C"), '/', 2), 4)))
         order by z.name ~ '^(Etc|SystemV|US|Brazil|Canada)/', length(z.name) limit 1;
    end if;
    perform postdate.refuse('the time zone is ' || case when exact is null then 'not known' else 'an abbreviation, or has no place' end,
        'It is ' || postdate.shown(zone) || '.', 'Write a name of pg_timezone_names with a slash, such as Europe/Berlin, or UTC.'
        || case when near is null then '' else ' The nearest right one: "' || near || '".' end);
end $$;

-- The instant in (from_at, to_at] from which on the zone's offset is the one at to_at.
create function postdate.zone_change(zone text, from_at timestamptz, to_at timestamptz) returns timestamptz language plpgsql stable as $$
declare
    low bigint := floor(date_part('epoch', from_at));
    high bigint := ceil(date_part('epoch', to_at));
    mid bigint;
    goal interval := (to_timestamp(high) at time zone zone) - (to_timestamp(high) at time zone 'UTC');
begin
    while high - low > 1 loop
        mid := (low + high) / 2;
        if (to_timestamp(mid) at time zone zone) - (to_timestamp(mid) at time zone 'UTC') = goal then high := mid; else low := mid; end if;
    end loop;
    return to_timestamp(high);
end $$;

-- Every hour of 400 days: 7 ms.
create function postdate.zone_print(zone text, from_at timestamptz) returns text language sql stable as $$
    select md5(string_agg((t at time zone zone)::text, ' ')) from generate_series(from_at, from_at + interval '400 days', interval '1 hour') t
$$;

-- What the day has of a change of the clock; null: none. A change at midnight belongs to the day that the clock says afterwards.
create function postdate.zone_mark(zone text, at timestamptz) returns text language plpgsql stable as $$
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

create function postdate.zone_shown(zone text, at timestamptz) returns text language sql stable as $$
    select to_char(w, 'YYYY-MM-DD"T"HH24:MI:SS') || case when o < '0' then '-' else '+' end || to_char(case when o < '0' then -o else o end, 'HH24:MI')
      from (select at at time zone zone as w, (at at time zone zone) - (at at time zone 'UTC') as o) x
$$;
