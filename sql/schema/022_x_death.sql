-- Version 22: the header x-death is as RabbitMQ writes it (core/message/reserved.h); its dead-lettering fails over anything else. Otherwise as in
-- 015_deadline.sql, and in any case of letters.
create or replace function postdate.check_headers(headers jsonb) returns integer language plpgsql immutable as $$
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
            perform postdate.refuse('headers: ' || left(k, 80) || ' is reserved', 'It would steer the gateway.',
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
                'RabbitMQ''s dead-lettering fails over anything else than what it writes there itself.');
        end if;
        size := size + 1 + octet_length(k) + postdate.check_header('headers: ' || left(k, 80), v, 1);
    end loop;
    return size;
end $$;
