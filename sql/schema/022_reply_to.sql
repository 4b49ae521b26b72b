-- Version 22: reply_to cannot be RabbitMQ's direct reply-to: it closes the channel of a publisher that has no consumer for the answer, and that is
-- the gateway (core/message/reserved.h). Otherwise as before (002_2_checks.sql).
create or replace function postdate.check_property(name text, value jsonb) returns integer language plpgsql immutable as $$
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
        allowed := 'Write the name of a queue: direct reply-to answers only who publishes the request itself, and the gateway publishes this one.';
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
