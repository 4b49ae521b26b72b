-- Version 2, part 3 of 6: scheduling.

create function postdate.check_exchange(s postdate.settings, exchange text) returns void language plpgsql stable as $$
begin
    perform postdate.check_name('exchange', exchange);
    if not (exchange like any (s.allow_like)) then
        perform postdate.refuse('exchange is not among those that delivery.allow lists', 'exchange is ' || postdate.shown(exchange) || '.',
            'Allowed are ' || left(array_to_string(s.allow, ', '), 200) || '.');
    end if;
end $$;

-- The due time in whole milliseconds, not beyond max_delay.
create function postdate.check_due(s postdate.settings, now_at timestamptz, at timestamptz) returns timestamptz language plpgsql stable as $$
begin
    if at > now_at + s.max_delay_ms * interval '1 millisecond' then
        perform postdate.refuse('the message would be due too far ahead', 'It would be due ' || at || '.',
            'Allowed are up to ' || postdate.ms_shown(s.max_delay_ms) || ' ahead (delivery.max_delay).');
    end if;
    return postdate.due_round(at, now_at);
end $$;

-- Properties and headers into the draft: as bytes where there are next to none, else as JSON. 'j': the body is JSON.
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
        if headers ? 'x-death' then d.hold := 'g'; end if; -- the broker would take the ladder for a cycle and drop it
    end if;
    if properties is not null then
        size := size + postdate.check_properties(properties);
        if properties ->> 'expiration' is not null then d.hold := 'g'; end if; -- it would count against the wait
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
    d.id := postdate.id_make(d.due);
    d.hold := case when s.broker_holds <> 'nothing' and (hold = 'broker' or (hold is null and s.broker_holds = 'all')) then 'b' else 'g' end;
    d.exchange := coalesce(exchange, s.exchange);
    d.routing_key := routing_key;
    d.key := key;
    d.on_conflict := coalesce(on_conflict, 'keep');
    d.body := body;
    return postdate.draft_properties(d, s, headers, properties, body_kind);
end $$;

-- One message. Answers as the key rules say: the new id, or the id of the message that was kept.
create function postdate.accept(routing_key text, body bytea, body_kind "char", delay interval, due_at timestamptz, exchange text, headers jsonb,
                                properties jsonb, key text, on_conflict text, hold text)
returns uuid language plpgsql as $$
declare
    s postdate.settings;
    d postdate.draft;
    now_at timestamptz := clock_timestamp();
    kept uuid;
begin
    if (delay is null) = (due_at is null) then
        perform postdate.refuse(case when delay is null then 'the due time is missing' else 'the due time is given twice' end,
            'delay is ' || postdate.shown(delay::text) || ', due_at is ' || postdate.shown(due_at::text) || '.', 'Give exactly one of delay and due_at.');
    end if;
    select * into strict s from postdate.settings;
    d := postdate.draft_make(s, now_at, routing_key, body, body_kind, coalesce(due_at, now_at + delay), exchange, headers, properties, key, on_conflict, hold);
    if d.key is not null then
        kept := postdate.key_take(d, s);
        if kept is not null then return kept; end if;
    end if;
    insert into postdate.message (due, next_at, created_at, id, hold, exchange, routing_key, key, properties, properties_json, body)
    values (d.due, d.due, now_at, d.id, d.hold, d.exchange, d.routing_key, d.key, d.properties, d.properties_json, d.body);
    perform postdate.after_write(s, d.due, now_at);
    return d.id;
end $$;

-- Committed means flushed, whatever the caller's session has set: what was accepted or cancelled stays so if Postgres crashes.
create function postdate.commit_durably() returns void language plpgsql as $$
begin
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
end $$;

-- The gateways look in time for what is due later than wake_ms; a NOTIFY makes commits queue up, so only what is due sooner gets one.
create function postdate.after_write(s postdate.settings, first_due timestamptz, now_at timestamptz) returns void language plpgsql as $$
begin
    perform postdate.commit_durably();
    if first_due < now_at + s.wake_ms * interval '1 millisecond' then
        perform pg_notify('postdate_wake', '');
    end if;
end $$;

create function postdate.schedule(routing_key text, body text, delay interval default null, due_at timestamptz default null,
                                  exchange text default null, headers jsonb default null, properties jsonb default null,
                                  key text default null, on_conflict text default 'keep', hold text default null)
returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return postdate.accept(routing_key, convert_to(body, 'UTF8'), 't', delay, due_at, exchange, headers, properties, key, on_conflict, hold);
end $$;

create function postdate.schedule(routing_key text, body bytea, delay interval default null, due_at timestamptz default null,
                                  exchange text default null, headers jsonb default null, properties jsonb default null,
                                  key text default null, on_conflict text default 'keep', hold text default null)
returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return postdate.accept(routing_key, body, 't', delay, due_at, exchange, headers, properties, key, on_conflict, hold);
end $$;

create function postdate.schedule(routing_key text, body json, delay interval default null, due_at timestamptz default null,
                                  exchange text default null, headers jsonb default null, properties jsonb default null,
                                  key text default null, on_conflict text default 'keep', hold text default null)
returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return postdate.accept(routing_key, convert_to(body::text, 'UTF8'), 'j', delay, due_at, exchange, headers, properties, key, on_conflict, hold);
end $$;

create function postdate.schedule(routing_key text, body jsonb, delay interval default null, due_at timestamptz default null,
                                  exchange text default null, headers jsonb default null, properties jsonb default null,
                                  key text default null, on_conflict text default 'keep', hold text default null)
returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return postdate.accept(routing_key, convert_to(body::text, 'UTF8'), 'j', delay, due_at, exchange, headers, properties, key, on_conflict, hold);
end $$;
