-- A message on its way into the tables.
create type postdate.draft as (
    due             timestamptz,
    id              uuid,
    hold            "char",
    exchange        text,
    routing_key     text,
    key             text,
    on_conflict     text,
    properties      bytea,
    properties_json jsonb,
    body            bytea,
    deadline        timestamptz
);

-- Properties and headers into the draft: as bytes where there are next to none, else as JSON. 'j': the body is JSON. No
-- property keeps a message from waiting in the broker: there it is in an envelope.
create function postdate.draft_properties(d postdate.draft, s postdate.settings, headers jsonb, properties jsonb, body_kind "char")
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

-- Checks everything and returns what is to be stored. at: when it is due, not rounded yet.
create function postdate.draft_make(s postdate.settings, now_at timestamptz, routing_key text, body bytea, body_kind "char", at timestamptz,
                                    exchange text, headers jsonb, properties jsonb, key text, on_conflict text, hold text)
returns postdate.draft language plpgsql as $$
declare
    d postdate.draft;
begin
    if routing_key is null or body is null then
        perform postdate.refuse(case when routing_key is null then 'routing_key' else 'body' end || ' is missing', 'It is null.',
            'Every message needs a routing key and a body; both may be empty.');
    end if;
    if octet_length(routing_key) > 255 then perform postdate.check_name('routing_key', routing_key); end if;
    if octet_length(body) > s.max_body then
        perform postdate.refuse('body is too long', 'body has ' || octet_length(body) || ' bytes.', 'Allowed are up to ' || s.max_body || ' (intake.max_body).');
    end if;
    if exchange is not null then perform postdate.check_exchange(s, exchange); end if;
    if key is not null then
        perform postdate.check_name('key', key);
        if key = '' then
            perform postdate.refuse('key is empty', 'key is "".', 'Allowed are 1 to 255 bytes, or leave it out.');
        end if;
    end if;
    if on_conflict not in ('keep', 'replace', 'reject') then
        perform postdate.refuse('on_conflict is unknown', 'on_conflict is ' || postdate.shown(on_conflict) || '.', 'Allowed are keep, replace, reject.');
    end if;
    if hold not in ('gateway', 'broker') then
        perform postdate.refuse('hold is unknown', 'hold is ' || postdate.shown(hold) || '.', 'Allowed are gateway, broker.');
    end if;
    d.due := postdate.check_due(s, now_at, at);
    d.id := postdate.id_make(d.due, s.cell);
    d.hold := case when s.broker_holds <> 'nothing' and (hold = 'broker' or (hold is null and s.broker_holds = 'all')) then 'b' else 'g' end;
    d.exchange := coalesce(exchange, s.exchange);
    d.routing_key := routing_key;
    d.key := key;
    d.on_conflict := coalesce(on_conflict, 'keep');
    d.body := body;
    return postdate.draft_properties(d, s, headers, properties, body_kind);
end $$;

-- How much of its spread a message is drawn, in whole milliseconds. Of one name it is always the same part: core/message/delay.c
-- counts the same from a key of an exchange, and else from the message-id. Without either it is a random one.
create function postdate.spread_of(exchange text, key text, message_id text, spread interval) returns interval language plpgsql as $$
declare
    most float8 := floor(extract(epoch from spread) * 1000);
    name bytea;
    id bytea;
begin
    if key is null and (coalesce(message_id, '') = '' or octet_length(message_id) > 255) then return floor(random() * (most + 1)) * interval '1 ms'; end if;
    name := case when key is null then '' else convert_to(exchange, 'UTF8') end;
    id := convert_to(coalesce(key, message_id), 'UTF8');
    name := decode(case when key is null then '69640a0a' else '6b65790a' end || lpad(to_hex(octet_length(name)), 2, '0'), 'hex') || name
            || decode(lpad(to_hex(octet_length(id)), 2, '0'), 'hex') || id;
    -- 53 bits, as many as a float has
    return floor((('x' || encode(substr(sha256(name), 1, 8), 'hex'))::bit(64) >> 11)::bigint * power(2.0::float8, -53) * (most + 1)) * interval '1 ms';
end $$;

-- The draft with its deadline, in whole milliseconds, rounded down: never later than was asked. latest: when it could be due.
create function postdate.draft_deadline(d postdate.draft, deadline timestamptz, latest timestamptz) returns postdate.draft language plpgsql as $$
begin
    if deadline is null then return d; end if;
    if not deadline < timestamptz '9999-12-31 23:59:59.999+00' then
        perform postdate.refuse('the deadline is too far ahead', 'deadline is ' || deadline || '.', 'Allowed are times before the year 10000.');
    end if;
    d.deadline := date_trunc('milliseconds', deadline);
    if d.deadline < latest then
        perform postdate.refuse('the deadline lies before the due time', 'deadline is ' || deadline || ', and the message would be due ' || latest || '.',
            'Allowed are the due time and later.');
    end if;
    d.hold := 'g';
    return d;
end $$;

-- The draft at a time that is drawn within its spread, and with its deadline, which lies after the last time that could be.
create function postdate.draft_times(d postdate.draft, s postdate.settings, now_at timestamptz, spread interval, message_id text, deadline timestamptz)
returns postdate.draft language plpgsql as $$
declare
    latest timestamptz := d.due;
begin
    if not spread >= interval '0' then
        perform postdate.refuse('the spread is not allowed', 'spread is ' || spread || '.', 'Allowed are 0 and more.');
    end if;
    if extract(epoch from spread) * 1000 <= s.max_delay_ms then
        latest := d.due + extract(epoch from spread) * interval '1 second'; -- as spread_of: a month has 30 days
    end if;
    if latest > greatest(d.due, now_at + s.max_delay_ms * interval '1 millisecond') or extract(epoch from spread) * 1000 > s.max_delay_ms then
        perform postdate.refuse('the spread ends too far ahead', 'spread is ' || spread || ', and the message would be due from ' || d.due || ' on.',
            'Allowed are delay and spread together up to ' || s.max_delay_ms * interval '1 millisecond' || ' (delivery.max_delay).');
    end if;
    if spread > interval '0' then
        d.due := d.due + postdate.spread_of(d.exchange, d.key, message_id, spread);
        d.id := postdate.id_make(d.due, s.cell);
    end if;
    return case when deadline is null then d else postdate.draft_deadline(d, deadline, latest) end;
end $$;
