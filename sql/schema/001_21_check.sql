-- What is allowed. The limits are those of core/message/accept.c and gateway/json/json_message*.c.

create function postdate.check_name(field text, value text) returns void language plpgsql immutable as $$
begin
    if octet_length(value) > 255 then
        perform postdate.refuse(field || ' is too long',
            field || ' has ' || octet_length(value) || ' bytes: ' || postdate.shown(value), 'Allowed are up to 255 bytes.');
    end if;
end $$;

create function postdate.check_number(field text, value jsonb) returns integer language plpgsql immutable as $$
declare
    n numeric := value::text::numeric;
begin
    if length(value::text) > 400 then
        -- a double has up to 350 digits, and more would take more memory than its bytes on the wire say
        perform postdate.refuse(field || ': the number is too long', 'It has ' || length(value::text) || ' digits: ' || postdate.shown(value::text) || '.',
            'Allowed are 64-bit integers and double precision numbers; write others as text.');
    elsif value::text !~ '[.]' then
        if n between -2147483648 and 2147483647 then return 5; end if;
        if n between -9223372036854775808 and 9223372036854775807 then return 9; end if;
    elsif abs(n) < 1.7e308 then
        return 9;
    end if;
    perform postdate.refuse(field || ': the number is too large', 'The value is ' || postdate.shown(value::text) || '.',
        'Allowed are 64-bit integers and double precision numbers; write others as text.');
end $$;

-- The bytes that a header's value takes on the wire; raises an error for what AMQP can't carry.
create function postdate.check_header(field text, value jsonb, depth integer) returns integer language plpgsql immutable as $$
declare
    size integer := 5;
    k text;
    v jsonb;
begin
    case jsonb_typeof(value)
    when 'string' then return 5 + octet_length(value #>> '{}');
    when 'number' then return postdate.check_number(field, value);
    when 'boolean' then return 2;
    when 'null' then return 1;
    else
    end case;
    if depth >= 32 then
        perform postdate.refuse('headers are nested too deep', field || ' has more than 32 levels.', 'Allowed are up to 32 levels.');
    end if;
    if jsonb_typeof(value) = 'array' then
        for v in select * from jsonb_array_elements(value) loop
            size := size + postdate.check_header(field, v, depth + 1);
        end loop;
        return size;
    end if;
    if value ? '!bytes' and value - '!bytes' = '{}' then
        begin
            if jsonb_typeof(value -> '!bytes') <> 'string' or (value ->> '!bytes') !~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$' then
                raise invalid_parameter_value;
            end if;
            return 5 + octet_length(decode(value ->> '!bytes', 'base64'));
        exception when data_exception then
            perform postdate.refuse(field || ': !bytes is not base64', 'The value is ' || postdate.shown(value ->> '!bytes') || '.',
                'Write {"!bytes": "<base64 with padding, on one line>"}.');
        end;
    end if;
    for k, v in select * from jsonb_each(value) loop
        perform postdate.check_name(field || ': the name of an entry', k);
        size := size + 1 + octet_length(k) + postdate.check_header(field, v, depth + 1);
    end loop;
    return size;
end $$;

-- x-death is as RabbitMQ writes it (core/message/reserved.h): its dead-lettering fails over anything else.
create function postdate.check_headers(headers jsonb) returns integer language plpgsql immutable as $$
declare
    size integer := 5;
    k text;
    v jsonb;
begin
    if jsonb_typeof(headers) <> 'object' then
        perform postdate.refuse('headers is not a JSON object', 'The value is ' || postdate.shown(headers::text) || '.', 'Write {"name": value, ...}.');
    end if;
    for k, v in select * from jsonb_each(headers) loop
        perform postdate.check_name('headers: the name of a header', k);
        if lower(k collate "C") similar to 'x-postdate-%|x-opt-delivery-%|x-delay' then
            perform postdate.refuse('headers: ' || left(k, 80) || ' is reserved', 'It controls the gateway.',
                'Use the parameters exchange, key, on_conflict, hold, deadline and delay or due_at.');
        end if;
        if k in ('CC', 'BCC') and (jsonb_typeof(v) <> 'array'
                or exists (select from jsonb_array_elements(v) r where jsonb_typeof(r) <> 'string')) then
            perform postdate.refuse('headers: ' || k || ' is not an array of strings', 'The value is ' || postdate.shown(v::text) || '.',
                'Write more routing keys, such as ["a", "b"].');
        end if;
        if k = 'x-death' and (jsonb_typeof(v) <> 'array'
                or exists (select from jsonb_array_elements(v) d where jsonb_typeof(d) <> 'object' or (d ? '!bytes' and d - '!bytes' = '{}'))) then
            perform postdate.refuse('headers: x-death is not an array of objects', 'The value is ' || postdate.shown(v::text) || '.',
                'RabbitMQ cannot dead-letter a message with any other value than its own.');
        end if;
        size := size + 1 + octet_length(k) + postdate.check_header('headers: ' || left(k, 80), v, 1);
    end loop;
    return size;
end $$;

-- reply_to is not RabbitMQ's direct reply-to: that closes the channel of a publisher that has no consumer for the answer, and
-- the gateway publishes (core/message/reserved.h).
create function postdate.check_property(name text, value jsonb) returns integer language plpgsql immutable as $$
declare
    t text := value #>> '{}';
    whole boolean := jsonb_typeof(value) = 'number' and value::text ~ '^-?[0-9]{1,18}$';
    allowed text;
begin
    case
    when name = 'delivery_mode' then
        if whole and t in ('1', '2') then return 1; end if;
        allowed := 'Write 1 (transient) or 2 (persistent).';
    when name = 'priority' then
        if whole and t::bigint between 0 and 255 then return 1; end if;
        allowed := 'Write a whole number from 0 to 255.';
    when name = 'timestamp' then
        if whole and t::bigint >= 0 then return 8; end if;
        if jsonb_typeof(value) = 'string' and t ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]([01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$'
           and t::timestamptz >= timestamptz '1970-01-01 00:00:00+00' and t::timestamptz < timestamptz '9999-12-31 23:59:59.999+00' then return 8; end if;
        allowed := 'Write seconds since 1970 or an RFC 3339 time from 1970 on.';
    when name = 'expiration' then
        if (whole or (jsonb_typeof(value) = 'string' and t ~ '^[0-9]{1,18}$')) and t::bigint between 0 and 315360000000 then
            return 20;
        end if;
        allowed := 'Write milliseconds from 0 to 315360000000.';
    when name = 'reply_to' and t = 'amq.rabbitmq.reply-to' then
        allowed := 'Write the name of a queue: direct reply-to works only for the connection that publishes the request, and the gateway publishes this one.';
    when name in ('content_type', 'content_encoding', 'correlation_id', 'reply_to', 'message_id', 'type', 'app_id') then
        if jsonb_typeof(value) = 'string' and octet_length(t) <= 255 then return 1 + octet_length(t); end if;
        allowed := 'Write a string of at most 255 bytes.';
    when name = 'user_id' then
        allowed := 'Use a header: RabbitMQ accepts only the publishing user''s own name there, and the gateway publishes.';
    else
        allowed := 'Allowed are content_type, content_encoding, delivery_mode, priority, correlation_id, reply_to, expiration, '
            'message_id, timestamp, type, app_id.';
    end case;
    perform postdate.refuse('properties: ' || left(name, 80) || ' is not allowed, or has a wrong value', 'The value is ' || postdate.shown(value::text) || '.', allowed);
end $$;

create function postdate.check_properties(properties jsonb) returns integer language plpgsql immutable as $$
declare
    size integer := 3;
    k text;
    v jsonb;
begin
    if jsonb_typeof(properties) <> 'object' then
        perform postdate.refuse('properties is not a JSON object', 'The value is ' || postdate.shown(properties::text) || '.', 'Write {"name": value, ...}.');
    end if;
    for k, v in select * from jsonb_each(properties) loop
        if jsonb_typeof(v) <> 'null' or k not in ('content_type', 'content_encoding', 'delivery_mode', 'priority', 'correlation_id',
                'reply_to', 'expiration', 'message_id', 'timestamp', 'type', 'app_id') then
            size := size + postdate.check_property(k, v);
        end if;
    end loop;
    return size;
end $$;

-- Is an exchange one of the gateway's own? postdate.return marks what goes back to a consumer's queue, whatever the prefix.
create function postdate.exchange_reserved(s postdate.settings, exchange text) returns boolean language sql immutable as $$
    select (exchange = s.prefix or starts_with(exchange, s.prefix || '.')) and exchange not in (s.exchange, 'postdate.delivery')
        or exchange = 'postdate.return'
$$;

-- The gateway's own exchanges are no targets (core/message/reserved.h). Those that only its configuration names, it refuses when due.
create function postdate.check_exchange(s postdate.settings, exchange text) returns void language plpgsql stable as $$
begin
    perform postdate.check_name('exchange', exchange);
    if not (exchange like any (s.allow_like)) then
        perform postdate.refuse('exchange is not among those that delivery.allow lists', 'exchange is ' || postdate.shown(exchange) || '.',
            'Allowed are ' || left(array_to_string(s.allow, ', '), 200) || '.');
    end if;
    if postdate.exchange_reserved(s, exchange) then
        perform postdate.refuse('exchange is one of the gateway''s own', 'exchange is ' || postdate.shown(exchange) || '.',
            'Allowed are delivery exchanges; names that begin with "' || s.prefix || '." are not, except ' || postdate.shown(s.exchange) || '.');
    end if;
end $$;

-- The due time in whole milliseconds, not beyond max_delay.
-- A time in seconds that was taken for milliseconds lies before (core/message/delay.h), and would be "at once".
create function postdate.check_era(due_at timestamptz) returns void language plpgsql stable as $$
begin
    if due_at < timestamptz '1973-03-03 09:46:40+00' then
        perform postdate.refuse('due_at lies before 1973', 'It is ' || due_at || '.', 'Was a time in seconds taken for milliseconds? Allowed is any time since then; one in the past is now.');
    end if;
end $$;

create function postdate.check_due(s postdate.settings, now_at timestamptz, at timestamptz) returns timestamptz language plpgsql stable as $$
begin
    perform postdate.check_era(at);
    if at > now_at + s.max_delay_ms * interval '1 millisecond' then
        perform postdate.refuse('the message would be due too far ahead', 'It would be due ' || at || '.',
            'Allowed are up to ' || postdate.ms_shown(s.max_delay_ms) || ' ahead (delivery.max_delay).');
    end if;
    return postdate.due_round(at, now_at);
end $$;
