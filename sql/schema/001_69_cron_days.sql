-- Sets of values, and days of a month, as bits.

create function postdate.cron_bits(matched boolean[], low integer, high integer) returns bit varying language sql immutable as $$
    select string_agg(case when matched[i] then '1' else '0' end, '' order by i)::bit varying from generate_series(low, high) i
$$;

-- The day that l, l-3, 15w, lw or l-3w is in a month of this length whose 1st is this weekday; null: none. A weekday (Monday to Friday) is looked
-- for in the same month only, as by Quartz.
create function postdate.cron_day(special text, len integer, first_ integer) returns integer language plpgsql immutable as $$
declare
    n integer := substring(special from '[0-9]+');
    d integer := case when special ~ '^l' then len - coalesce(n, 0) else n end;
    weekday integer := (first_ + d - 1) % 7;
begin
    return case when d not between 1 and len then null
                when special !~ 'w$' or weekday between 1 and 5 then d
                when weekday = 6 then case when d = 1 then 3 else d - 1 end
                else case when d = len then d - 2 else d + 1 end end;
end $$;

-- The day that 1#2 or 5l is in such a month; null: none.
create function postdate.cron_nth_day(nth text, len integer, first_ integer) returns integer language plpgsql immutable as $$
declare
    d integer := (left(nth, 1)::integer - first_ + 7) % 7 + 1; -- the first of them
begin
    d := d + case when nth ~ 'l$' then (len - d) / 7 else right(nth, 1)::integer - 1 end * 7;
    return case when d <= len then d end;
end $$;

-- The days of each kind of month. As Debian's cron: if both day fields are restricted (none begins with * or ?), either may match.
create function postdate.cron_days(by_date bit(31), dates text[], by_weekday bit(7), nth text[], either boolean) returns bit varying
language plpgsql immutable as $$
declare
    bits bit varying := '';
    weeks bit varying := repeat(by_weekday::text, 6)::bit varying;
    dated bit(31);
    named bit(31);
    special text;
    d integer;
begin
    for len in 28..31 loop
        for first_ in 0..6 loop
            dated := by_date;
            named := substring(weeks from first_ + 1 for 31);
            foreach special in array dates loop
                d := postdate.cron_day(special, len, first_);
                if d is not null then dated := set_bit(dated, d - 1, 1); end if;
            end loop;
            foreach special in array nth loop
                d := postdate.cron_nth_day(special, len, first_);
                if d is not null then named := set_bit(named, d - 1, 1); end if;
            end loop;
            bits := bits || substring(case when either then dated | named else dated & named end for len) || repeat('0', 31 - len)::bit varying;
        end loop;
    end loop;
    return bits;
end $$;

-- "1h30m" in seconds; null: no duration.
create function postdate.cron_every(duration text) returns bigint language sql immutable as $$
    select case when duration ~ '^([0-9]{1,7}(s|m|h|d|w))+$' then
        (select sum(m[1]::bigint * case m[2] when 's' then 1 when 'm' then 60 when 'h' then 3600 when 'd' then 86400 else 604800 end)::bigint
           from regexp_matches(duration, '([0-9]+)([smhdw])', 'g') m) end
$$;
