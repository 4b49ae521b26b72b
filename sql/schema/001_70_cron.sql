-- Cron expressions, as cron, Spring and Quartz write them.

-- An expression, parsed once: a set bit is a value that matches. Which days match depends on the weekday of the 1st and on the month's
-- length only: 7 times 4 kinds of month, 31 bits each, so that L, W, # and the rules of both day fields need no work later.
create type postdate.cron_plan as (
    every_s bigint,        -- @every: seconds; the rest is null
    wild    boolean,       -- minute or hour is *, */2 or 0/2: it follows the clock through repeats and gaps
    seconds bit(60),
    minutes bit(60),
    hours   bit(24),
    months  bit(12),
    days    bit varying,
    years   bit varying    -- from 1970 on; null: any
);

create function postdate.cron_macro(expression text, out plan postdate.cron_plan, out fields text) language plpgsql immutable as $$
declare
    word text := lower(split_part(expression collate "C", ' ', 1));
    rest text := lower(replace(substr(expression collate "C", length(word) + 1), ' ', ''));
    p postdate.cron_place := row(expression, '@every', null, 0, 0, 0, '');
begin
    if word = '@every' then
        plan.every_s := postdate.cron_every(rest);
        if plan.every_s is null or plan.every_s not between 1 and 63072000 then
            perform postdate.cron_refuse(p, postdate.shown(rest) || ' is no duration that it takes',
                'Allowed are 1s to 730d in whole seconds, such as 90s, 15m, 1h30m, 7d.', case when rest ~ '^[0-9]{1,7}$' and rest::integer > 0 then '"@every ' || rest || 's"'
                    when rest ~ '^[0-9.]+ms$' or rest ~ '^0+s?$' then '"@every 1s"' end);
        end if;
        return;
    elsif word = '@reboot' then
        perform postdate.refuse('cron: "@reboot" is not supported', 'It names no time: in crontab(5) it means once, when the machine starts.',
            'To send a message when a machine starts, run postdate schedule there, for example from a systemd unit. Allowed are @every with a duration, @hourly, @daily, @weekly, @monthly, @yearly.');
    end if;
    fields := case word when '@hourly' then '0 * * * *' when '@daily' then '0 0 * * *' when '@midnight' then '0 0 * * *' when '@weekly' then '0 0 * * 0'
                        when '@monthly' then '0 0 1 * *' when '@yearly' then '0 0 1 1 *' when '@annually' then '0 0 1 1 *' end;
    if fields is null or rest <> '' then
        perform postdate.refuse('cron: ' || postdate.shown(word) || case when fields is null then ' is not known' else ' takes nothing behind it' end,
            'In ' || postdate.shown(expression) || case when fields is null then ', @ begins a word that stands for five fields.' else ', it stands for all five fields.' end,
            'Allowed are @every with a duration, @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually.'
            || coalesce(' The nearest right one: "' || case when fields is not null then word when word ~ '^@(hour|day|week|month|year)s?$' then
                replace(rtrim(word, 's') || 'ly', 'dayly', 'daily') end || '".', ''));
    end if;
end $$;

-- The expression with single blanks, of characters that it can have.
create function postdate.cron_text(cron text) returns text language plpgsql immutable as $$
declare
    shown text := btrim(regexp_replace(cron, E'\\s+', ' ', 'g'));
    strange text := case when octet_length(cron) > length(cron) then substring(cron from E'[^\\x01-\\x7f]') end;
    blank boolean := ascii(strange) in (160, 5760, 8239, 8287, 12288, 65279) or ascii(strange) between 8192 and 8205;
    dash boolean := ascii(strange) between 8208 and 8213 or ascii(strange) = 8722;
begin
    if cron is null or shown = '' then
        perform postdate.refuse('cron: the expression is ' || case when cron is null then 'missing' else 'empty' end,
            'It is ' || postdate.shown(cron) || '.', 'Write five fields (minute, hour, day of month, month, day of week), or six with the second first, such as "0 9 * * mon-fri".');
    elsif strange <> '' then
        perform postdate.refuse('cron: the character U+' || lpad(upper(to_hex(ascii(strange))), 4, '0') || ' at column ' || position(strange in cron) || ' is not understood',
            'It is ' || case when blank then 'a blank of another kind, in ' when dash then 'a dash of another kind, in ' else 'in ' end || postdate.shown(cron) || '.',
            'Allowed are blanks, and the characters on the keys of a keyboard.' || case
                when blank then ' The nearest right one: "' || btrim(regexp_replace(replace(cron, strange, ' '), E'\\s+', ' ', 'g')) || '".'
                when dash then ' The nearest right one: "' || replace(shown, strange, '-') || '".' else '' end);
    elsif position('=' in shown) > 0 and shown ~* '^(cron_)?tz *=' then
        perform postdate.refuse('cron: the time zone is no part of the expression', 'It is ' || postdate.shown(cron) || '.',
            'Write it apart: --zone on the command line, "zone" in JSON and YAML, zone => in SQL.'
            || coalesce(' The nearest right one: "' || substring(shown from '(?i)^(?:cron_)?tz *= *"?[a-z0-9_/+-]+"? (.*)$') || '" with the zone "'
                || substring(shown from '(?i)^(?:cron_)?tz *= *"?([a-z0-9_/+-]+)"? ') || '".', ''));
    end if;
    return shown;
end $$;

-- What somebody who writes "every 5 minutes" means; null: something else.
create function postdate.cron_said(shown text) returns text language sql immutable as $$
    select '@every ' || coalesce(m[1], '1') || left(m[2], 1)
      from regexp_match(lower(shown collate "C"), '^@?every(?: +([1-9][0-9]{0,6}))? *(s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)$') r (m) where m is not null
$$;

-- Weekdays with names for numbers; sunday: the number of Sunday.
create function postdate.cron_named(weekdays text, sunday integer) returns text language sql immutable as $$
    select upper(string_agg(coalesce(substr('sunmontuewedthufrisat', (m[1]::integer - sunday) % 7 * 3 + 1, 3)
                     || coalesce('-' || substr('sunmontuewedthufrisat', (m[2]::integer - sunday) % 7 * 3 + 1, 3), '') || m[3], item), ',' order by n))
      from unnest(string_to_array(weekdays, ',')) with ordinality i (item, n), lateral (select regexp_match(item, '^([1-7])(?:-([1-7]))?(.*)$')) r (m)
$$;

-- Refuses an expression that means one thing in cron and another one in Quartz, and what Quartz does not have.
create function postdate.cron_check_dialect(expression text, dialect text, fields text[], by_date text, by_weekday text) returns void language plpgsql immutable as $$
declare
    number integer := case cardinality(fields) when 5 then 5 else 6 end;
    at integer := length(array_to_string(fields[:number - 1], ' ')) + 2;
begin
    if dialect is null and '?' = any (fields) and by_weekday ~ '(^|[,-])[1-7]([,/#l-]|$)' and by_weekday !~ '(^|[,-])0' then
        perform postdate.refuse('cron: day of week ' || postdate.shown(by_weekday) || ' may be cron''s or Quartz''s',
            'It is field ' || number || ', at column ' || at || ' of ' || postdate.shown(expression) || '. Cron and Spring, where 1 is Monday, read '
                || postdate.cron_named(by_weekday, 0) || '; Quartz, where 1 is Sunday, reads ' || postdate.cron_named(by_weekday, 1) || '.',
            'Write names, or say which: --dialect cron or --dialect quartz on the command line, "dialect" in JSON and YAML, dialect => in SQL.');
    elsif dialect = 'quartz' and by_date not in ('*', '?') and by_weekday not in ('*', '?') then
        perform postdate.refuse('cron: day of month and day of week are both given', 'It is ' || postdate.shown(expression) || '. Quartz takes one of them.',
            'Write "?" for the other one. With the dialect cron, a day matches that fits either.');
    end if;
end $$;

-- Refuses an expression that matches no day in any year that it names.
create function postdate.cron_check_comes(expression text, p postdate.cron_plan, fields text[]) returns void language plpgsql immutable as $$
declare
    first_ integer := case cardinality(fields) when 5 then 3 else 4 end; -- of the days
    weekdays text := case when fields[first_ + 2] not in ('*', '?') then ' on day of week ' || postdate.shown(fields[first_ + 2]) else '' end;
    place postdate.cron_place := row(expression, 'day of month', first_, length(array_to_string(fields[:first_ - 1], ' ')) + 2, 1, 31, '');
begin
    -- of the years from 2026 on, all kinds come
    if postdate.cron_local(p, case when p.years is null then 1767225600 else 0 end) is not null then return; end if;
    perform postdate.cron_refuse(place, postdate.shown(fields[first_]) || ' never comes in month ' || postdate.shown(fields[first_ + 1]) || weekdays
            || case when fields[7] <> '*' then ' of year ' || postdate.shown(fields[7]) else '' end,
        'Name a day that one of the months has.' || case when weekdays <> '' then ' Where a day field begins with * or ?, both must match.' else '' end,
        case when weekdays = '' then '"L" for the last day' end);
end $$;

-- dialect: 'cron' or 'quartz' says which day of the week 1 is; null: nobody has said it.
create function postdate.cron_parse(cron text, dialect text default null) returns postdate.cron_plan
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    names text[] := '{second,minute,hour,"day of month",month,"day of week",year}';
    lows integer[] := array[0, 0, 0, 1, 1, case dialect when 'quartz' then 1 else 0 end, 1970];
    highs integer[] := '{59,59,23,31,12,7,2199}';
    words text[] := '{"","","","","jan feb mar apr may jun jul aug sep oct nov dec ","sun mon tue wed thu fri sat ",""}';
    shown text;
    fields text[];
    p postdate.cron_plan;
    macro record;
    f record;
    dates record;
    first_ integer;
    at integer := 1;
begin
    perform postdate.recur_short('cron', cron);
    shown := postdate.cron_text(cron);
    if dialect is not null and dialect not in ('cron', 'quartz') then
        perform postdate.refuse('cron: dialect is unknown', 'It is ' || postdate.shown(dialect) || '.', 'Allowed are cron (days of the week 0 to 7, 0 and 7 are Sunday) and quartz (1 to 7, 1 is Sunday).');
    end if;
    if shown ~ '^@' then
        macro := postdate.cron_macro(shown);
        if (macro.plan).every_s is not null then return macro.plan; end if;
        dialect := 'cron';
        lows[6] := 0;
        fields := string_to_array(macro.fields, ' ');
    else
        fields := string_to_array(lower(shown collate "C"), ' ');
    end if;
    if cardinality(fields) not in (5, 6, 7) then
        perform postdate.refuse('cron: ' || cardinality(fields) || ' fields', 'It is ' || postdate.shown(cron) || '.',
            'Write five fields (minute, hour, day of month, month, day of week), six with the second first, or seven with the year last, too.'
            || case when postdate.cron_said(shown) is not null then ' The nearest right one: "' || postdate.cron_said(shown) || '".'
                    when cardinality(fields) in (3, 4) and shown !~* '[a-z]{4}' then ' The nearest right one: "' || shown || repeat(' *', 5 - cardinality(fields)) || '".' else '' end);
    elsif cardinality(fields) = 6 and '?' in (fields[3], fields[5]) then
        perform postdate.refuse('cron: the first of six fields is the second', 'It is ' || postdate.shown(cron) || ', where "?" is not in a day field. Amazon EventBridge has no second, and the year as the sixth field.',
            'Write the second as well. The nearest right one: "0 ' || shown || '".');
    end if;
    first_ := case cardinality(fields) when 5 then 2 else 1 end; -- of the names
    p.wild := fields[3 - first_] ~ '^([*]|[0-9]+/)' or fields[4 - first_] ~ '^([*]|[0-9]+/)';
    p.seconds := (B'1' || repeat('0', 59)::bit varying)::bit(60);
    for i in first_..first_ + cardinality(fields) - 1 loop
        f := postdate.cron_field(row(shown, names[i], i - first_ + 1, at, lows[i], highs[i], words[i])::postdate.cron_place, fields[i - first_ + 1]);
        case i
        when 1 then p.seconds := postdate.cron_bits(f.matched, 0, 59);
        when 2 then p.minutes := postdate.cron_bits(f.matched, 0, 59);
        when 3 then p.hours := postdate.cron_bits(f.matched, 0, 23);
        when 4 then dates := f;
        when 5 then p.months := postdate.cron_bits(f.matched, 1, 12);
        when 6 then p.days := postdate.cron_days(postdate.cron_bits(dates.matched, 1, 31)::bit(31), dates.special, postdate.cron_bits(f.matched, 0, 6)::bit(7), f.special,
            fields[5 - first_] !~ '^[*?]' and fields[7 - first_] !~ '^[*?]');
        when 7 then
            if fields[7] <> '*' then p.years := postdate.cron_bits(f.matched, 1970, 2199); end if;
        end case;
        at := at + length(fields[i - first_ + 1]) + 1;
    end loop;
    perform postdate.cron_check_dialect(shown, dialect, fields, fields[5 - first_], fields[7 - first_]);
    perform postdate.cron_check_comes(shown, p, fields);
    return p;
end $$;
