-- What is refused, and how that is said.

create function postdate.refuse(message text, detail text, hint text, code text default '22023') returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using errcode = code, message = message, detail = detail, hint = hint;
end $$;

-- A value for an error's detail: cut short.
create function postdate.shown(value text) returns text language sql immutable as $$
    select case when value is null then 'null' when length(value) > 60 then '"' || left(value, 60) || '..."' else '"' || value || '"' end
$$;

create function postdate.ms_shown(ms bigint) returns text language sql immutable as $$
    select case when ms % 86400000 = 0 then ms / 86400000 || ' days' else round(ms / 1000.0, 3) || ' s' end
$$;
