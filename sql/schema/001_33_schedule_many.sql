-- Scheduling, many at once.

-- One item of schedule_many: the message object of HTTP and `postdate schedule --batch`.
create function postdate.draft_parse(s postdate.settings, now_at timestamptz, v jsonb) returns postdate.draft
language plpgsql as $$
declare
    at timestamptz;
    body bytea;
    kind "char" := 't';
    given integer;
    f text;
    d postdate.draft;
begin
    if jsonb_typeof(v) is distinct from 'object' then
        perform postdate.refuse('the item is not a JSON object', 'It is ' || postdate.shown(v::text) || '.', 'Write {"routing_key": ..., ...}.');
    end if;
    f := (select k from jsonb_object_keys(v - '{routing_key,exchange,delay_ms,delay,due_at,body,body_base64,json,headers,properties,key,on_conflict,hold,deadline,spread}'::text[]) k limit 1);
    if f is not null then
        perform postdate.refuse('unknown field', 'It is ' || postdate.shown(f) || '.', 'Allowed are routing_key, exchange, delay_ms, delay, '
            'due_at, body, body_base64, json, headers, properties, key, on_conflict, hold, deadline, spread.');
    end if;
    foreach f in array '{routing_key,exchange,delay,due_at,body,body_base64,key,on_conflict,hold,deadline,spread}'::text[] loop
        if jsonb_typeof(v -> f) not in ('string', 'null') then
            perform postdate.refuse(f || ' is not a string', 'It is ' || postdate.shown(v ->> f) || '.', 'Write it as a JSON string.');
        end if;
    end loop;

    foreach f in array '{delay,spread}'::text[] loop    -- PostgreSQL takes such an interval for seconds
        if v ->> f ~ '^ *[-+]?[0-9.]+ *$' then
            perform postdate.refuse(f || ' has no unit', 'It is ' || postdate.shown(v ->> f) || '.', 'Write one, such as 15m, 90s or 250ms.');
        end if;
    end loop;

    given := num_nonnulls(v ->> 'delay_ms', v ->> 'delay', v ->> 'due_at');
    if given <> 1 then
        perform postdate.refuse(case given when 0 then 'the due time is missing' else 'the due time is given twice' end,
            'The item has ' || given || ' of them.', 'Write exactly one of delay_ms, delay and due_at.');
    end if;
    if v ->> 'delay_ms' is not null then
        if jsonb_typeof(v -> 'delay_ms') <> 'number' or v ->> 'delay_ms' !~ '^[0-9]{1,15}$' then
            perform postdate.refuse('delay_ms is not allowed', 'It is ' || postdate.shown(v ->> 'delay_ms') || '.', 'Write a whole number of milliseconds, 0 or more.');
        end if;
        at := now_at + (v ->> 'delay_ms')::bigint * interval '1 millisecond';
    elsif v ->> 'delay' is not null then
        at := now_at + (v ->> 'delay')::interval;
    else
        if v ->> 'due_at' !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?([Zz]|[+-][0-9]{2}:?[0-9]{2})$' then
            perform postdate.refuse('due_at is not a time', 'It is ' || postdate.shown(v ->> 'due_at') || '.', 'Write an RFC 3339 time with an offset: 2026-11-22T08:00:00Z.');
        end if;
        at := (v ->> 'due_at')::timestamptz;
    end if;

    given := num_nonnulls(v ->> 'body', v ->> 'body_base64') + (v ? 'json')::integer;
    if given <> 1 then
        perform postdate.refuse(case given when 0 then 'the body is missing' else 'the body is given twice' end,
            'The item has ' || given || ' of them.', 'Write exactly one of body, body_base64 and json.');
    end if;
    if v ? 'json' then
        body := convert_to((v -> 'json')::text, 'UTF8');
        kind := 'j';
    elsif v ->> 'body' is not null then
        body := convert_to(v ->> 'body', 'UTF8');
    else
        body := decode(v ->> 'body_base64', 'base64');
    end if;
    d := postdate.draft_make(s, now_at, coalesce(v ->> 'routing_key', null), body, kind, at, v ->> 'exchange',
        nullif(v -> 'headers', 'null'), nullif(v -> 'properties', 'null'), v ->> 'key', v ->> 'on_conflict', v ->> 'hold');
    if coalesce(v ->> 'deadline', v ->> 'spread') is null then return d; end if;
    if v ->> 'deadline' !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?([Zz]|[+-][0-9]{2}:?[0-9]{2})$' then
        perform postdate.refuse('deadline is not a time', 'It is ' || postdate.shown(v ->> 'deadline') || '.', 'Write an RFC 3339 time with an offset: 2026-11-22T08:00:00Z.');
    end if;
    return postdate.draft_times(d, s, now_at, (v ->> 'spread')::interval, v #>> '{properties,message_id}', (v ->> 'deadline')::timestamptz);
end $$;

-- The drafts of all items. Those with nothing unusual (no headers or properties, defaults for the rest) are made by expressions: a
-- function call for each would cost more than storing them.
create function postdate.drafts_read(s postdate.settings, now_at timestamptz, now_ms timestamptz, messages jsonb) returns postdate.draft[]
language sql as $$
    select array_agg(case when plain
                          then row(due, postdate.id_make(due, s.cell), case when s.broker_holds = 'all' then 'b' else 'g' end, coalesce(v ->> 'exchange', s.exchange),
                                   v ->> 'routing_key', v ->> 'key', 'keep', decode('100002', 'hex'), null, convert_to(v ->> 'body', 'UTF8'), null)::postdate.draft
                          else postdate.draft_parse(s, now_at, v) end order by o)
      from (select v, o, plain,
                   case when not plain then null
                        when v ? 'delay_ms' then now_ms + (v ->> 'delay_ms')::bigint * interval '1 ms'
                        when v ? 'delay' then now_ms + (v ->> 'delay')::interval
                        else greatest(now_ms, date_bin('1 ms', (v ->> 'due_at')::timestamptz + interval '999 us', timestamptz '1970-01-01 00:00:00+00')) end as due
              from (select v, o, jsonb_typeof(v) = 'object' and v - '{routing_key,delay_ms,delay,due_at,body,exchange,key}'::text[] = '{}'
                            and jsonb_typeof(v -> 'routing_key') = 'string' and octet_length(v ->> 'routing_key') <= 255
                            and jsonb_typeof(v -> 'body') = 'string' and octet_length(v ->> 'body') <= s.max_body
                            and case when v ? 'delay' then not v ? 'due_at' and not v ? 'delay_ms' and jsonb_typeof(v -> 'delay') = 'string'
                                          and v ->> 'delay' ~ '^[0-9]{1,6} ?(ms|s|min|h|d)$' and (v ->> 'delay')::interval <= s.max_delay_ms * interval '1 ms'
                                     when v ? 'delay_ms' then not v ? 'due_at' and jsonb_typeof(v -> 'delay_ms') = 'number'
                                          and v ->> 'delay_ms' ~ '^[0-9]{1,13}$' and (v ->> 'delay_ms')::bigint <= s.max_delay_ms
                                     else jsonb_typeof(v -> 'due_at') = 'string'
                                          and v ->> 'due_at' ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$'
                                          and (v ->> 'due_at')::timestamptz >= timestamptz '1973-03-03 09:46:40+00'
                                          and (v ->> 'due_at')::timestamptz <= now_at + s.max_delay_ms * interval '1 ms' end
                            and (not v ? 'exchange' or (jsonb_typeof(v -> 'exchange') = 'string' and octet_length(v ->> 'exchange') <= 255
                                                        and v ->> 'exchange' like any (s.allow_like) and not postdate.exchange_reserved(s, v ->> 'exchange')))
                            and (not v ? 'key' or (jsonb_typeof(v -> 'key') = 'string' and octet_length(v ->> 'key') between 1 and 255)) is true as plain
                      from jsonb_array_elements(messages) with ordinality a (v, o) offset 0) p offset 0) d
$$;

-- The drafts of all items, and the errors of those that are refused. Only if one is refused are they looked at one by one; nothing
-- is written meanwhile, so that costs no transaction ids.
create function postdate.drafts_parse(s postdate.settings, now_at timestamptz, messages jsonb, out drafts postdate.draft[], out errors text[])
language plpgsql as $$
declare
    item jsonb;
    n integer := 0;
    what text;
    detail text;
    hint text;
begin
    begin
        drafts := postdate.drafts_read(s, now_at, postdate.due_round(now_at, now_at), messages);
        return;
    exception when data_exception then
        drafts := '{}';
    end;
    for item in select * from jsonb_array_elements(messages) loop
        n := n + 1;
        begin
            drafts[n] := postdate.draft_parse(s, now_at, item);
        exception when data_exception then
            get stacked diagnostics what = message_text, detail = pg_exception_detail, hint = pg_exception_hint;
            drafts[n] := null;
            errors[n] := concat_ws(' ', what || '.', nullif(detail, ''), nullif(hint, ''));
        end;
    end loop;
end $$;

-- A draft whose key was taken when the batch came by: decided alone. code: the SQLSTATE of the error.
create function postdate.draft_accept(d postdate.draft, s postdate.settings, out id uuid, out error text, out code text) language plpgsql as $$
declare
    detail text;
    hint text;
begin
    id := postdate.draft_store(d, s, clock_timestamp());
exception when unique_violation or object_not_in_prerequisite_state then
    get stacked diagnostics error = message_text, code = returned_sqlstate, detail = pg_exception_detail, hint = pg_exception_hint;
    id := null;
    error := concat_ws(' ', error || '.', nullif(detail, ''), nullif(hint, ''));
end $$;

-- sqlstate: one of those that postdate.schedule has. What PostgreSQL says of a value that it cannot read is a wrong argument, too, with whichever code of its class.
-- kept: the key was taken, and id is the message that keeps it, as HTTP answers with 200, not 201.
create function postdate.schedule_many(messages jsonb) returns table (ordinal integer, id uuid, error text, sqlstate text, kept boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    s postdate.settings;
    now_at timestamptz := clock_timestamp();
    p record;
    a record;
    r record;
    stored uuid[];
    ids uuid[];
    refused text[];
    codes text[];
    decided boolean[];
    first_due timestamptz;
    fence bigint := postdate.fence_for_store();
begin
    if jsonb_typeof(messages) is distinct from 'array' then
        perform postdate.refuse('messages is not a JSON array', 'It is ' || postdate.shown(messages::text) || '.', 'Write [{"routing_key": ..., "delay": ..., "body": ...}, ...].');
    end if;
    if jsonb_array_length(messages) > 10000 then
        perform postdate.refuse('too many messages at once', 'There are ' || jsonb_array_length(messages) || '.', 'Allowed are up to 10000 in one call.');
    end if;
    select * into strict s from postdate.settings;
    p := postdate.drafts_parse(s, now_at, messages);
    -- Keys that are free are taken together, sorted, so that two batches lock in one order; of equal ones the first item wins.
    with draft as materialized (
        select d.* from unnest(p.drafts) with ordinality as d (due, id, hold, exchange, routing_key, key, on_conflict, properties, properties_json, body, deadline, o)
         where d.id is not null),
    won as (
        insert into postdate.key (exchange, key, due, id)
        select f.exchange, f.key, f.due, f.id
          from (select distinct on (d.exchange, d.key) d.exchange, d.key, d.due, d.id from draft d
                 where d.key is not null order by d.exchange, d.key, d.o) f
            on conflict do nothing
        returning id),
    inserted as (
        insert into postdate.message (due, next_at, created_at, id, hold, exchange, routing_key, key, properties, properties_json, body, deadline)
        select d.due, postdate.next_at_of(d.due, d.hold, fence), now_at, d.id, d.hold, d.exchange, d.routing_key, d.key, d.properties, d.properties_json, d.body, d.deadline
          from draft d where d.key is null or d.id in (select w.id from won w)
        returning id, due)
    select array_agg(i.id), min(i.due) into stored, first_due from inserted i;
    if cardinality(p.drafts) > 0 then
        perform postdate.after_write(s, first_due, now_at);
    end if;
    if cardinality(stored) = cardinality(p.drafts) then
        return query
            select d.o::integer, d.id, null::text, null::text, false
              from unnest(p.drafts) with ordinality as d (due, id, hold, exchange, routing_key, key, on_conflict, properties, properties_json, body, deadline, o);
        return;
    end if;
    -- Those whose key was taken, in the order of the keys, too.
    for r in
        select o::integer as ordinal
          from unnest(p.drafts) with ordinality as d (due, id, hold, exchange, routing_key, key, on_conflict, properties, properties_json, body, deadline, o)
          left join unnest(stored) i (id) on i.id = d.id
         where d.id is not null and i.id is null
         order by d.exchange, d.key, o
    loop
        a := postdate.draft_accept(p.drafts[r.ordinal], s);
        ids[r.ordinal] := a.id;
        refused[r.ordinal] := a.error;
        codes[r.ordinal] := a.code;
        decided[r.ordinal] := true;
    end loop;
    return query
        select d.o::integer, case when decided[d.o] then ids[d.o] else d.id end, case when decided[d.o] then refused[d.o] when d.id is null then p.errors[d.o] end,
               case when decided[d.o] then codes[d.o] when d.id is null then '22023' end,
               case when decided[d.o] then ids[d.o] <> d.id when d.id is not null then false end
          from unnest(p.drafts) with ordinality as d (due, id, hold, exchange, routing_key, key, on_conflict, properties, properties_json, body, deadline, o)
         order by d.o;
end $$;
