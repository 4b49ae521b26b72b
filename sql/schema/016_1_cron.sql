-- Version 16, part 1 of 3: cron expressions and time zones. This is the only implementation: SQL, command line, HTTP, control queue and
-- gateways all call it. Zones are PostgreSQL's (pg_timezone_names).

-- An expression, parsed once: a set bit is a value that matches. Which days match depends on the weekday of the 1st and on the month's
-- length only: 7 times 4 kinds of month, 31 bits each, so that L, # and the rules of both day fields need no work later.
create type postdate.cron_plan as (
    every_s bigint,        -- @every: seconds; the rest is null
    wild    boolean,       -- '*' begins the minute or the hour: it follows the clock through repeats and gaps
    seconds bit(60),
    minutes bit(60),
    hours   bit(24),
    months  bit(12),
    days    bit varying
);

create function postdate.cron_refuse(expression text, field text, number integer, at integer, problem text, allowed text, nearest text)
returns void language plpgsql as $$
begin
    perform postdate.refuse('cron: ' || field || ' ' || problem,
        case when number > 0 then 'It is field ' || number || ', at column ' || at || ' of ' else 'It is ' end || postdate.shown(expression) || '.',
        allowed || case when nearest is null then '' else ' The nearest right one: ' || nearest || '.' end);
end $$;

-- One number or name of a field; null: it is neither. A name may be written out.
create function postdate.cron_value(item text, names text, base integer) returns integer language sql immutable as $$
    select case when item ~ '^[0-9]{1,9}$' then item::integer
                when names <> '' and item ~ '^[a-z]{3}$' and position(item in names) % 4 = 1 then (position(item in names) - 1) / 4 + base end
$$;

-- One field into its set of values (of days of the week: 0 to 6), L and # apart. text_ is lower case; at: its column in the expression.
create function postdate.cron_field(expression text, field text, number integer, at integer, text_ text, low integer, high integer, names text,
                                    out matched boolean[], out last_ boolean, out nth text[])
language plpgsql immutable as $$
declare
    item text;
    span text;
    step integer;
    first_ integer;
    final integer;
    sep integer;
    is_dow boolean := field = 'day of week';
    allowed text := 'Allowed are ' || low || ' to ' || high || case when names <> '' then ' or ' || replace(trim(names), ' ', ', ') else '' end
        || ', *, lists (1,5), ranges (1-5) and steps (*/5, 1-9/2)' || case field when 'day of month' then ', and L for the last day'
        when 'day of week' then ', 5L for the last Friday, 2#1 for the first Tuesday' else '' end || '.';
begin
    matched := array_fill(false, array[high + 1], array[0]);
    last_ := false;
    nth := '{}';
    foreach item in array string_to_array(text_, ',') loop
        if item = '' then
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(text_) || ' has an empty place in its list', allowed,
                '"' || trim(both ',' from regexp_replace(text_, ',+', ',', 'g')) || '"');
        end if;
        if field = 'day of month' and item = 'l' then
            last_ := true;
            at := at + 2;
            continue;
        end if;
        if is_dow and item ~ '^([0-9]+|[a-z]+)(l|#[0-9]*)$' then
            sep := case when item ~ 'l$' then length(item) else position('#' in item) end;
            first_ := postdate.cron_value(left(item, sep - 1), names, 0);
            if first_ between 0 and 7 and substr(item, sep) ~ '^(l|#[1-5])$' then
                nth := nth || (first_ % 7 || substr(item, sep));
                at := at + length(item) + 1;
                continue;
            elsif first_ between 0 and 7 then
                perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' is in no month', 'Allowed are #1 to #5, and L for the last.',
                    '"' || left(item, sep - 1) || case when substr(item, sep) ~ '^#[0-9]+$' and substr(item, sep) <> '#0' then 'L' else '#1' end || '"');
            end if;
        end if;
        span := split_part(item, '/', 1);
        if item ~ '/' and (item !~ '^[^/]+/[0-9]{1,9}$' or span !~ '^\*$|-') then
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' is no step',
                'A step follows * or a range, as in */5 or ' || low || '-' || high || '/5.',
                case when item ~ '^[0-9]{1,4}/[0-9]{1,4}$' and span::integer between low and high then '"' || span || '-' || high || '/' || split_part(item, '/', 2) || '"' end);
        end if;
        step := case when item ~ '/' then split_part(item, '/', 2)::integer else 1 end;
        if step = 0 then
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' has a step of 0', 'Allowed are steps from 1.', '"' || span || '/1"');
        end if;
        if span = '*' then
            first_ := low;
            final := case when is_dow then 6 else high end;
        else
            first_ := postdate.cron_value(split_part(span, '-', 1), names, low);
            final := case when span ~ '-' then postdate.cron_value(substr(span, position('-' in span) + 1), names, low) else first_ end;
        end if;
        if first_ is null or final is null then
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' is not understood', allowed,
                case when item = '?' then '"*"'
                     when names <> '' and item ~ '^[a-z]{3,}$' and postdate.cron_value(left(item, 3), names, low) is not null then '"' || left(item, 3) || '"' end);
        elsif first_ < low or first_ > high or final < low or final > high then
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' is out of range', allowed,
                '"' || least(greatest(first_, low), high) || case when span ~ '-' then '-' || greatest(least(final, high), least(greatest(first_, low), high)) else '' end
                    || case when item ~ '/' then '/' || step else '' end || '"');
        elsif first_ > final then
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' begins behind its end', 'A range goes from the lower to the higher one.',
                case when is_dow and final = 0 then '"' || first_ || '-7"' when step = 1 then '"' || first_ || '-' || case when is_dow then 6 else high end || ',' || low || '-' || final || '"' end);
        end if;
        for v in first_..final by step loop matched[case when is_dow then v % 7 else v end] := true; end loop;
        at := at + length(item) + 1;
    end loop;
end $$;

create function postdate.cron_bits(matched boolean[], low integer, high integer) returns bit varying language sql immutable as $$
    select string_agg(case when matched[i] then '1' else '0' end, '' order by i)::bit varying from generate_series(low, high) i
$$;

-- The days of each kind of month. As Debian's cron: if both day fields are restricted (none begins with *), either may match.
create function postdate.cron_days(by_date boolean[], last_ boolean, by_weekday boolean[], nth text[], either boolean) returns bit varying
language plpgsql immutable as $$
declare
    bits text := '';
    weekday integer;
    dated boolean;
    named boolean;
begin
    for len in 28..31 loop
        for first_ in 0..6 loop
            for d in 1..31 loop
                weekday := (first_ + d - 1) % 7;
                dated := by_date[d] or (last_ and d = len);
                named := by_weekday[weekday] or weekday || '#' || (d + 6) / 7 = any (nth) or (d > len - 7 and weekday || 'l' = any (nth));
                bits := bits || case when d <= len and case when either then dated or named else dated and named end then '1' else '0' end;
            end loop;
        end loop;
    end loop;
    return bits::bit varying;
end $$;

-- "1h30m" in seconds; null: no duration.
create function postdate.cron_every(duration text) returns bigint language sql immutable as $$
    select case when duration ~ '^([0-9]{1,7}(s|m|h|d|w))+$' then
        (select sum(m[1]::bigint * case m[2] when 's' then 1 when 'm' then 60 when 'h' then 3600 when 'd' then 86400 else 604800 end)::bigint
           from regexp_matches(duration, '([0-9]+)([smhdw])', 'g') m) end
$$;

create function postdate.cron_macro(expression text, out plan postdate.cron_plan, out fields text, out hourly boolean) language plpgsql immutable as $$
declare
    word text := lower(split_part(expression, ' ', 1));
    rest text := lower(replace(substr(expression, length(word) + 1), ' ', ''));
begin
    hourly := word = '@hourly';
    if word = '@every' then
        plan.every_s := postdate.cron_every(rest);
        if plan.every_s is null or plan.every_s not between 1 and 63072000 then
            perform postdate.cron_refuse(expression, '@every', 0, 0, postdate.shown(rest) || ' is no duration that it takes',
                'Allowed are 1s to 730d in whole seconds, such as 90s, 15m, 1h30m, 7d.', case when rest ~ '^[0-9]{1,7}$' and rest::integer > 0 then '"@every ' || rest || 's"'
                    when rest ~ '^[0-9.]+ms$' or rest ~ '^0+s?$' then '"@every 1s"' end);
        end if;
        return;
    end if;
    fields := case word when '@hourly' then '0 * * * *' when '@daily' then '0 0 * * *' when '@midnight' then '0 0 * * *' when '@weekly' then '0 0 * * 0'
                        when '@monthly' then '0 0 1 * *' when '@yearly' then '0 0 1 1 *' when '@annually' then '0 0 1 1 *' end;
    if fields is null or rest <> '' then
        perform postdate.cron_refuse(expression, postdate.shown(word), 0, 0, 'is not known',
            'Allowed are @every with a duration, @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually.',
            case when fields is not null then '"' || word || '"' when word ~ '^@(hour|day|week|month|year)s?$' then
                '"' || replace(rtrim(word, 's') || 'ly', 'dayly', 'daily') || '"' end);
    end if;
end $$;

-- The longest possible wait is 40 years, for a weekday on 29 February across the year 2100.
create function postdate.cron_local(p postdate.cron_plan, t bigint) returns bigint language plpgsql immutable as $$
declare
    day date := date '1970-01-01' + (t / 86400)::integer;
    y integer := date_part('year', day);
    mo integer := date_part('month', day);
    d integer := date_part('day', day);
    s integer := t % 86400;
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
    for i in 1..600 loop
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

create function postdate.cron_parse(cron text) returns postdate.cron_plan language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    shown text := btrim(regexp_replace(cron, '\s+', ' ', 'g'));
    names text[] := '{second,minute,hour,"day of month",month,"day of week"}';
    lows integer[] := '{0,0,0,1,1,0}';
    highs integer[] := '{59,59,23,31,12,7}';
    words text[] := '{"","","","","jan feb mar apr may jun jul aug sep oct nov dec ","sun mon tue wed thu fri sat "}';
    fields text[];
    p postdate.cron_plan;
    macro record;
    f record;
    by_date boolean[];
    last_ boolean;
    first_ integer;
    at integer := 1;
begin
    if cron is null or shown = '' or octet_length(cron) > 1000 then
        perform postdate.refuse('cron: the expression is ' || case when shown = '' then 'empty' when cron is null then 'missing' else 'too long' end,
            'It is ' || postdate.shown(cron) || '.', 'Write five fields (minute, hour, day of month, month, day of week), or six with the second first, such as "0 9 * * mon-fri".');
    end if;
    if shown ~ '^@' then
        macro := postdate.cron_macro(shown);
        if (macro.plan).every_s is not null then return macro.plan; end if;
        fields := string_to_array(macro.fields, ' ');
    else
        fields := string_to_array(lower(shown), ' ');
    end if;
    if cardinality(fields) not in (5, 6) then
        perform postdate.refuse('cron: ' || cardinality(fields) || ' fields', 'It is ' || postdate.shown(cron) || '.',
            'Write five fields (minute, hour, day of month, month, day of week), or six with the second first.'
            || case when cardinality(fields) in (3, 4) then ' The nearest right one: "' || shown || repeat(' *', 5 - cardinality(fields)) || '".' else '' end);
    end if;
    first_ := 7 - cardinality(fields); -- of the names
    p.wild := fields[cardinality(fields) - 4] ~ '^\*' or fields[cardinality(fields) - 3] ~ '^\*';
    p.seconds := (B'1' || repeat('0', 59)::bit varying)::bit(60);
    for i in first_..6 loop
        f := postdate.cron_field(shown, names[i], i - first_ + 1, at, fields[i - first_ + 1], lows[i], highs[i], words[i]);
        case i
        when 1 then p.seconds := postdate.cron_bits(f.matched, 0, 59);
        when 2 then p.minutes := postdate.cron_bits(f.matched, 0, 59);
        when 3 then p.hours := postdate.cron_bits(f.matched, 0, 23);
        when 4 then
            by_date := f.matched;
            last_ := f.last_;
        when 5 then p.months := postdate.cron_bits(f.matched, 1, 12);
        when 6 then p.days := postdate.cron_days(by_date, last_, f.matched, f.nth,
            fields[cardinality(fields) - 2] !~ '^\*' and fields[cardinality(fields)] !~ '^\*');
        end case;
        at := at + length(fields[i - first_ + 1]) + 1;
    end loop;
    if postdate.cron_local(p, 1767225600) is null then -- from 2026 on
        perform postdate.cron_refuse(shown, 'day of month', cardinality(fields) - 2, length(array_to_string(fields[:cardinality(fields) - 3], ' ')) + 2,
            postdate.shown(fields[cardinality(fields) - 2]) || ' never comes in month ' || postdate.shown(fields[cardinality(fields) - 1])
                || case when fields[cardinality(fields)] <> '*' then ' on day of week ' || postdate.shown(fields[cardinality(fields)]) else '' end,
            'Name a day that one of the months has.' || case when fields[cardinality(fields)] <> '*' then ' Where a day field begins with *, both must match.' else '' end,
            case when fields[cardinality(fields)] = '*' then '"L" for the last day' end);
    end if;
    return p;
end $$;

-- The zone's name as PostgreSQL spells it. Abbreviations are refused: PostgreSQL takes CET for UTC+1 all year.
create function postdate.zone_check(zone text) returns text language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    exact text;
    near text;
begin
    if zone = 'UTC' then return zone; end if;
    if zone ~ '^[A-Z][A-Za-z]+/[A-Za-z_/-]+$' then -- has a slash and no digit: never an abbreviation or a POSIX rule. Reading all names takes 50 ms.
        begin
            perform now() at time zone zone;
            return zone;
        exception when invalid_parameter_value then
            null;
        end;
    end if;
    select z.name into exact from pg_timezone_names z where lower(z.name) = lower(zone) and z.name !~ '^posix' order by z.name = zone desc limit 1;
    if found and (exact in ('UTC', 'GMT') or exact ~ '/') then return exact; end if;
    if exact is null then
        select z.name into near from pg_timezone_names z
         where z.name ~ '/' and z.name !~ '^posix'
           and (lower(z.name) like '%/' || lower(replace(replace(replace(zone, ' ', '_'), '%', ''), '\', ''))
                or regexp_replace(lower(z.name), '[^a-z]', '', 'g') = regexp_replace(lower(zone), '[^a-z]', '', 'g')
                or (split_part(lower(z.name), '/', 1) = split_part(lower(zone), '/', 1) and zone ~ '/' and left(split_part(lower(z.name), '/', 2), 4) = left(split_part(lower(zone), '/', 2), 4)))
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
create function postdate.recur_next(cron text, zone text, after timestamptz) returns timestamptz
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select postdate.cron_next(postdate.cron_parse(cron), postdate.zone_check(zone), after)
$$;
