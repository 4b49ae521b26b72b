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

-- The days of each kind of month. As Debian's cron: if both day fields are restricted (none begins with * or ?), either may match.
create function postdate.cron_days(by_date boolean[], dates text[], by_weekday boolean[], nth text[], either boolean) returns bit varying
language plpgsql immutable as $$
declare
    bits text := '';
    weekday integer;
    resolved integer[];
    dated boolean;
    named boolean;
begin
    for len in 28..31 loop
        for first_ in 0..6 loop
            resolved := array(select postdate.cron_day(s, len, first_) from unnest(dates) s);
            for d in 1..31 loop
                weekday := (first_ + d - 1) % 7;
                dated := by_date[d] or coalesce(d = any (resolved), false);
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
