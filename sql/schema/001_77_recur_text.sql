-- Durations, times and bodies of schedules, as JSON has them.

-- Texts that are looked at letter by letter are short: a regular expression over megabytes takes seconds of a worker.
create function postdate.recur_short(field text, value text) returns void language plpgsql immutable as $$
begin
    if octet_length(value) > 1000 then
        perform postdate.refuse('recur: ' || field || ' is too long', 'It has ' || octet_length(value) || ' bytes.', 'Allowed are up to 1000.');
    end if;
end $$;

-- What RFC 3339 can write, and what @every can count from.
create function postdate.recur_year(at timestamptz) returns boolean language sql immutable as $$
    select coalesce(isfinite(at) and at >= '1970-01-01 00:00+00' and at < '10000-01-01 00:00+00', true)
$$;

create function postdate.recur_text(o json, field text, fallback text default null) returns text language plpgsql immutable as $$
declare
    kind text := json_typeof(o -> field);
begin
    if kind is null or kind = 'null' then return fallback; end if;
    if kind = 'string' and field not in ('body', 'body_base64') then perform postdate.recur_short(field, o ->> field); end if;
    if kind = 'string' then return o ->> field; end if;
    perform postdate.refuse('recur: ' || field || ' is no string', 'It is ' || postdate.shown((o -> field)::text) || '.', 'Write it in quotes.');
end $$;

-- A duration as it is written everywhere: units once each, largest first.
create function postdate.recur_duration(field text, value text) returns interval language plpgsql immutable as $$
begin
    if value is null then return null; end if;
    perform postdate.recur_short(field, value);
    if value ~ '^((?=[0-9])([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?|P(?=[0-9]|T[0-9])([0-9]+W)?([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+([.][0-9]+)?S)?)?)$' then
        return value::interval;
    end if;
    raise invalid_datetime_format;
exception when invalid_datetime_format or datetime_field_overflow or interval_field_overflow then
    perform postdate.refuse('recur: ' || field || ' is no duration', 'It is ' || postdate.shown(value) || '.', 'Write 250ms, 90s, 15m, 36h, 30d or ISO 8601 (PT15M).');
end $$;

-- In a language that plans them once: each schedule that is set or listed shows several of them.
create function postdate.recur_duration_shown(value interval) returns text language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    ms bigint := date_part('epoch', value) * 1000;
begin
    return case when ms % 86400000 = 0 and ms > 0 then ms / 86400000 || 'd' when ms % 3600000 = 0 and ms > 0 then ms / 3600000 || 'h'
                when ms % 60000 = 0 and ms > 0 then ms / 60000 || 'm' when ms % 1000 = 0 then ms / 1000 || 's' else ms || 'ms' end;
end $$;

create function postdate.recur_time(field text, value text) returns timestamptz language plpgsql immutable as $$
begin
    perform postdate.recur_short(field, value);
    if value is null or value ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$' then return value::timestamptz; end if;
    raise invalid_datetime_format;
exception when invalid_datetime_format or datetime_field_overflow or invalid_time_zone_displacement_value then
    perform postdate.refuse('recur: ' || field || ' is no time', 'It is ' || postdate.shown(value) || '.', 'Write RFC 3339 with an offset, such as 2026-11-22T08:00:00Z.');
end $$;

create function postdate.recur_time_shown(at timestamptz) returns text language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
end $$;

-- What is base64 comes out again as it went in.
create function postdate.base64_body(value text) returns bytea language plpgsql immutable as $$
declare
    body bytea;
begin
    body := decode(value, 'base64');
    if replace(encode(body, 'base64'), E'\n', '') = value then return body; end if;
    raise invalid_parameter_value;
exception when invalid_parameter_value then
    perform postdate.refuse('recur: body_base64 is not base64', 'It is ' || postdate.shown(value) || '.', 'Write base64 with padding, on one line.');
end $$;
