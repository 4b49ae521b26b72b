-- Cron expressions. This is the only implementation: SQL, command line, HTTP, control queue and gateways all call it.

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
        if item = '?' then
            -- of the weekday after it, Quartz's 2 is Monday
            perform postdate.cron_refuse(expression, field, number, at, '"?" is not understood',
                'Write * instead. "?" is Quartz''s, where days of the week count from 1 for Sunday; here 0 is Sunday and 1 is Monday, or write their names.',
                case when is_dow or expression !~ '[0-9][^ ]*$' then '"*"'
                     when expression ~ ' [1-7]$' then '"*", and "' || split_part('sun mon tue wed thu fri sat', ' ', right(expression, 1)::integer) || '" as the day of week' end);
        end if;
        if first_ is null or final is null then
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' is not understood', allowed,
                case when names <> '' and item ~ '^[a-z]{3,}$' and postdate.cron_value(left(item, 3), names, low) is not null then '"' || left(item, 3) || '"' end);
        elsif item = (high + 1)::text and low = 0 and not is_dow then -- 24:00, or the 60th minute
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' is out of range',
                allowed || case field when 'hour' then ' Midnight is 0.' else '' end, '"0"');
        elsif first_ < low or first_ > high or final < low or final > high then
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' is out of range', allowed,
                '"' || least(greatest(first_, low), high) || case when span ~ '-' then '-' || greatest(least(final, high), least(greatest(first_, low), high)) else '' end
                    || case when item ~ '/' then '/' || step else '' end || '"');
        elsif first_ > final then
            perform postdate.cron_refuse(expression, field, number, at, postdate.shown(item) || ' begins behind its end', 'A range goes from the lower to the higher one.',
                case when is_dow and first_ = 7 and step = 1 then '"0-' || final || '"'
                     when is_dow and final = 0 then '"' || first_ || '-7"' when step = 1 then '"' || first_ || '-' || case when is_dow then 6 else high end || ',' || low || '-' || final || '"' end);
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
    word text := lower(split_part(expression collate "C", ' ', 1));
    rest text := lower(replace(substr(expression collate "C", length(word) + 1), ' ', ''));
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

create function postdate.cron_parse(cron text) returns postdate.cron_plan language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    shown text;
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
    strange text;
begin
    perform postdate.recur_short('cron', cron);
    shown := btrim(regexp_replace(cron, '\s+', ' ', 'g'));
    strange := case when octet_length(cron) > length(cron) then substring(cron from '[^\x01-\x7f]') end;
    if cron is null or shown = '' then
        perform postdate.refuse('cron: the expression is ' || case when cron is null then 'missing' else 'empty' end,
            'It is ' || postdate.shown(cron) || '.', 'Write five fields (minute, hour, day of month, month, day of week), or six with the second first, such as "0 9 * * mon-fri".');
    end if;
    if strange <> '' then
        perform postdate.refuse('cron: the character U+' || lpad(upper(to_hex(ascii(strange))), 4, '0') || ' at column ' || position(strange in cron) || ' is not understood',
            'It is ' || case when ascii(strange) in (160, 5760, 8239, 8287, 12288, 65279) or ascii(strange) between 8192 and 8205 then 'a blank of another kind, in '
                             when ascii(strange) between 8208 and 8213 or ascii(strange) = 8722 then 'a dash of another kind, in ' else 'in ' end || postdate.shown(cron) || '.',
            'Allowed are blanks, and the characters on the keys of a keyboard.' || case
                when ascii(strange) in (160, 5760, 8239, 8287, 12288, 65279) or ascii(strange) between 8192 and 8205
                    then ' The nearest right one: "' || btrim(regexp_replace(replace(cron, strange, ' '), '\s+', ' ', 'g')) || '".'
                when ascii(strange) between 8208 and 8213 or ascii(strange) = 8722 then ' The nearest right one: "' || replace(shown, strange, '-') || '".' else '' end);
    end if;
    if position('=' in shown) > 0 and shown ~* '^(cron_)?tz *=' then
        perform postdate.refuse('cron: the time zone is no part of the expression', 'It is ' || postdate.shown(cron) || '.',
            'Write it apart: --zone on the command line, "zone" in JSON and YAML, zone => in SQL.'
            || coalesce(' The nearest right one: "' || substring(shown from '(?i)^(?:cron_)?tz *= *"?[a-z0-9_/+-]+"? (.*)$') || '" with the zone "'
                || substring(shown from '(?i)^(?:cron_)?tz *= *"?([a-z0-9_/+-]+)"? ') || '".', ''));
    end if;
    if shown ~ '^@' then
        macro := postdate.cron_macro(shown);
        if (macro.plan).every_s is not null then return macro.plan; end if;
        fields := string_to_array(macro.fields, ' ');
    else
        fields := string_to_array(lower(shown collate "C"), ' ');
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
