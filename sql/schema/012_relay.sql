-- Version 12: what each gateway has taken from the exit queue, by which the others know what the broker has lost.
alter table postdate.instance
    add column relay_at timestamptz,
    add column relay_low timestamptz,
    add column relay_ping timestamptz,
    add column relay_consumers integer not null default 0;

-- Properties and headers into the draft: as bytes where there are next to none, else as JSON. 'j': the body is JSON. No
-- property keeps a message from waiting in the broker any more: there it is in an envelope.
create or replace function postdate.draft_properties(d postdate.draft, s postdate.settings, headers jsonb, properties jsonb, body_kind "char")
returns postdate.draft language plpgsql stable as $$
declare
    size integer := 0;
begin
    if headers is null and properties is null then
        -- persistent, and the content type: AMQP flags, then values (core/message/wire.h)
        -- (without a backslash: what that means is up to the caller's standard_conforming_strings)
        d.properties := case body_kind when 'j' then decode('900010', 'hex') || convert_to('application/json', 'UTF8') || decode('02', 'hex')
                                       else decode('100002', 'hex') end;
        return d;
    end if;
    if headers is not null then
        size := postdate.check_headers(headers);
    end if;
    if properties is not null then
        size := size + postdate.check_properties(properties);
    end if;
    if size > s.max_properties then
        perform postdate.refuse('headers and properties are too large', 'They take ' || size || ' bytes.',
            'Allowed are ' || s.max_properties || ' bytes together.');
    end if;
    if body_kind = 'j' and coalesce(properties ->> 'content_type', '') = '' and not coalesce(properties ? 'content_type' and jsonb_typeof(properties -> 'content_type') = 'string', false) then
        properties := coalesce(properties, '{}') || '{"content_type": "application/json"}';
    end if;
    d.properties := '';
    d.properties_json := jsonb_build_object('headers', headers, 'properties', properties);
    return d;
end $$;
