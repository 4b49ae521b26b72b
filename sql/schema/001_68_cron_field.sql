-- One field of a cron expression. This is the only implementation: SQL, command line, HTTP, control queue and gateways all call it.

-- Where a field stands, and what it takes. Of days of the week, low is the number of Sunday: 0 in cron, 1 in Quartz.
create type postdate.cron_place as (
    expression text,
    field      text,
    number     integer, -- null: the expression is a macro
    at         integer, -- the column
    low        integer,
    high       integer,
    names      text
);

create function postdate.cron_refuse(p postdate.cron_place, problem text, allowed text, nearest text default null) returns void language plpgsql as $$
begin
    perform postdate.refuse('cron: ' || p.field || ' ' || problem,
        case when p.number is not null then 'It is field ' || p.number || ', at column ' || p.at || ' of ' else 'It is ' end || postdate.shown(p.expression) || '.',
        allowed || case when nearest is null then '' else ' The nearest right one: ' || nearest || '.' end);
end $$;

create function postdate.cron_allowed(p postdate.cron_place) returns text language sql immutable as $$
    select 'Allowed are ' || p.low || ' to ' || p.high || case when p.names <> '' then ' or ' || replace(trim(p.names), ' ', ', ') else '' end
        || ', *, lists (1,5), ranges (1-5) and steps (*/5, 1-9/2)' || case p.field
            when 'day of month' then ', ? for any, L for the last day, L-3 for three days before it, 15W for the weekday (Monday to Friday) nearest to the 15th, LW for the last one'
            when 'day of week' then ', ? for any, ' || 5 + p.low || 'L for the last Friday, ' || 2 + p.low || '#1 for the first Tuesday' else '' end || '.'
$$;

-- One number or name of a field; null: it is neither. A name may be written out.
create function postdate.cron_value(item text, names text, base integer) returns integer language sql immutable as $$
    select case when item ~ '^[0-9]{1,9}$' then item::integer
                when names <> '' and item ~ '^[a-z]{3}$' and position(item in names) % 4 = 1 then (position(item in names) - 1) / 4 + base end
$$;

-- A day of the month that depends on the month: l, l-3, 15w, lw, l-3w. Null: it is none.
create function postdate.cron_date(p postdate.cron_place, item text) returns text language plpgsql immutable as $$
declare
    n integer := substring(item from '[0-9]{1,9}');
begin
    if item !~ '^(lw?|l-[0-9]{1,9}w?|[0-9]{1,9}w)$' then return null; end if;
    if item ~ '-' and n not between 1 and 30 then
        perform postdate.cron_refuse(p, postdate.shown(item) || ' is in no month', 'Allowed are L for the last day, and L-1 to L-30 for the days before it.',
            case when n = 0 then '"L' || case when item ~ 'w$' then 'W' else '' end || '"' end);
    elsif n not between 1 and 31 then
        perform postdate.cron_refuse(p, postdate.shown(item) || ' is in no month', 'Allowed are 1W to 31W, and LW for the last weekday.', case when n = 0 then '"1W"' else '"LW"' end);
    end if;
    return item;
end $$;

-- A day of the week that comes once a month, as number from 0 for Sunday: 5l, 2#1. Null: it is none.
create function postdate.cron_nth(p postdate.cron_place, item text) returns text language plpgsql immutable as $$
declare
    sep integer := case when item ~ 'l$' then length(item) else position('#' in item) end;
    weekday integer;
begin
    if item = 'l' then
        perform postdate.cron_refuse(p, '"L" names no day', 'Write the day before it, as in FRIL for the last Friday. The last day of the month is L as day of month.');
    elsif item !~ '^([0-9]+|[a-z]+)(l|#[0-9]*)$' then
        return null;
    end if;
    weekday := postdate.cron_value(left(item, sep - 1), p.names, p.low);
    if weekday between p.low and 7 and substr(item, sep) ~ '^(l|#[1-5])$' then
        return (weekday - p.low) % 7 || substr(item, sep);
    elsif weekday between p.low and 7 then
        perform postdate.cron_refuse(p, postdate.shown(item) || ' is in no month', 'Allowed are #1 to #5, and L for the last.',
            '"' || left(item, sep - 1) || case when substr(item, sep) ~ '^#[0-9]+$' and substr(item, sep) <> '#0' then 'L' else '#1' end || '"');
    end if;
    return null;
end $$;

-- The step of an item; 1: it has none.
create function postdate.cron_step(p postdate.cron_place, item text) returns integer language plpgsql immutable as $$
declare
    span text := split_part(item, '/', 1);
    weekdays boolean := p.field = 'day of week';
    size integer := case when weekdays then 7 else p.high - p.low + 1 end;
    step integer;
    every text;
begin
    if item !~ '/' then return 1; end if;
    if item !~ '^[^/]+/[0-9]{1,9}$' then
        perform postdate.cron_refuse(p, postdate.shown(item) || ' is no step', 'A step follows *, a first value or a range, as in */5, 5/5 or ' || p.low || '-' || p.high || '/5.');
    elsif weekdays and p.low = 0 and span !~ E'^\\*$|-' then -- to Saturday, or to Sunday as 7?
        perform postdate.cron_refuse(p, postdate.shown(item) || ' is no step', 'Of days of the week, a step follows * or a range, as in */2 or 1-5/2.',
            case when span ~ '^[0-7]$' then '"' || span || '-7/' || split_part(item, '/', 2) || '"' end);
    end if;
    step := split_part(item, '/', 2);
    if step = 0 then
        perform postdate.cron_refuse(p, postdate.shown(item) || ' has a step of 0', 'Allowed are steps from 1.', '"' || span || '/1"');
    elsif step > size then
        every := step || case p.field when 'second' then 's' when 'minute' then 'm' when 'hour' then 'h' when 'day of month' then 'd' when 'day of week' then 'd' end;
        perform postdate.cron_refuse(p, postdate.shown(item) || ' has a step larger than the field', 'Allowed are steps up to ' || size || '.'
            || case when postdate.cron_every(every) <= 63072000 then ' For each ' || step || ' ' || case when every ~ 'd$' then 'day' else p.field end || 's write "@every ' || every || '".' else '' end);
    end if;
    return step;
end $$;

-- A number, a name, a range or *, with a step or without.
create function postdate.cron_span(p postdate.cron_place, item text, out first_ integer, out final integer, out step integer) language plpgsql immutable as $$
declare
    span text := split_part(item, '/', 1);
    weekdays boolean := p.field = 'day of week';
    last_ integer := case when weekdays then p.low + 6 else p.high end;
begin
    step := postdate.cron_step(p, item);
    if span = '*' then
        first_ := p.low;
        final := last_;
    else
        first_ := postdate.cron_value(split_part(span, '-', 1), p.names, p.low);
        final := case when span ~ '-' then postdate.cron_value(substr(span, position('-' in span) + 1), p.names, p.low) when item ~ '/' then last_ else first_ end;
    end if;
    if item ~ '[?]' then
        perform postdate.cron_refuse(p, postdate.shown(item) || ' is not understood', '"?" means any day: it stands alone, as day of month or day of week.', case when span = '?' then '"' || replace(item, '?', '*') || '"' end);
    elsif first_ is null or final is null then
        perform postdate.cron_refuse(p, postdate.shown(item) || ' is not understood', postdate.cron_allowed(p),
            (select '"' || short || '"' from (select regexp_replace(item, '([a-z]{3})[a-z]+', E'\\1', 'g') as short) x
              where p.names <> '' and short <> item and postdate.cron_value(split_part(split_part(short, '/', 1), '-', 1), p.names, p.low) is not null
                and (short !~ '-' or postdate.cron_value(split_part(split_part(short, '/', 1), '-', 2), p.names, p.low) is not null)));
    elsif item = (p.high + 1)::text and p.low = 0 and not weekdays then -- 24:00, or the 60th minute
        perform postdate.cron_refuse(p, postdate.shown(item) || ' is out of range', postdate.cron_allowed(p) || case p.field when 'hour' then ' Midnight is 0.' else '' end, '"0"');
    elsif p.field = 'year' and first_ < 100 and final < 100 then
        perform postdate.cron_refuse(p, postdate.shown(item) || ' is out of range', 'Years are written with four digits, 1970 to 2199.', '"' || replace(first_ + 2000 || '-' || final + 2000, '-' || first_ + 2000, '') || '"');
    elsif first_ < p.low or first_ > p.high or final < p.low or final > p.high then
        perform postdate.cron_refuse(p, postdate.shown(item) || ' is out of range', postdate.cron_allowed(p),
            '"' || least(greatest(first_, p.low), p.high) || case when span ~ '-' then '-' || greatest(least(final, p.high), least(greatest(first_, p.low), p.high)) else '' end
                || case when item ~ '/' then '/' || step else '' end || '"');
    elsif first_ > final then
        perform postdate.cron_refuse(p, postdate.shown(item) || ' begins behind its end', 'A range goes from the lower to the higher one.',
            case when weekdays and p.low = 0 and first_ = 7 and step = 1 then '"0-' || final || '"' when weekdays and p.low = 0 and final = 0 then '"' || first_ || '-7"'
                 when step = 1 then '"' || first_ || '-' || last_ || ',' || p.low || '-' || final || '"' end);
    end if;
end $$;

-- A field into its set of values (of days of the week: 0 to 6), and what depends on the month apart. text_ is lower case.
create function postdate.cron_field(p postdate.cron_place, text_ text, out matched boolean[], out special text[]) language plpgsql immutable as $$
declare
    item text;
    one text;
    s record;
    weekdays boolean := p.field = 'day of week';
begin
    matched := array_fill(false, array[p.high + 1], array[0]);
    special := '{}';
    foreach item in array string_to_array(case when text_ = '?' and p.field ~ '^day' then '*' else text_ end, ',') loop
        if item = '' then
            perform postdate.cron_refuse(p, postdate.shown(text_) || ' has an empty place in its list', postdate.cron_allowed(p),
                '"' || trim(both ',' from regexp_replace(text_, ',+', ',', 'g')) || '"');
        end if;
        one := case when p.field = 'day of month' then postdate.cron_date(p, item)
                    when weekdays and (item <> 'l' or p.low = 0) then postdate.cron_nth(p, item) end;
        if one is not null then
            special := special || one;
        elsif weekdays and item = 'l' then -- Quartz's Saturday
            matched[6] := true;
        else
            s := postdate.cron_span(p, item);
            for v in s.first_..s.final by s.step loop matched[case when weekdays then (v - p.low) % 7 else v end] := true; end loop;
        end if;
        p.at := p.at + length(item) + 1;
    end loop;
end $$;
