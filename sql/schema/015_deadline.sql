-- Version 15: deadlines. After it a message is not published any more: it ends as `expired`. What has one is held by the gateway (hold = 'g').

alter type postdate.message_state add value 'expired';

alter table postdate.message add column deadline timestamptz;
do $$
declare
    loose text;
begin
    -- Days whose detach was interrupted must still fit when they are attached again.
    for loose in
        select c.relname from pg_class c
         where c.relnamespace = 'postdate'::regnamespace and c.relkind = 'r' and c.relname ~ '^message_[0-9]{8}$'
           and not exists (select from pg_inherits i where i.inhrelid = c.oid)
    loop
        execute format('alter table postdate.%I add column if not exists deadline timestamptz', loose);
    end loop;
end $$;

alter type postdate.draft add attribute deadline timestamptz;

-- The draft with its deadline, in whole milliseconds, rounded down: never later than was asked.
create function postdate.draft_deadline(d postdate.draft, deadline timestamptz) returns postdate.draft language plpgsql as $$
begin
    if deadline is null then return d; end if;
    if not deadline < timestamptz '9999-12-31 23:59:59.999+00' then
        perform postdate.refuse('the deadline is too far ahead', 'deadline is ' || deadline || '.', 'Allowed are times before the year 10000.');
    end if;
    d.deadline := date_trunc('milliseconds', deadline);
    if d.deadline < d.due then
        perform postdate.refuse('the deadline lies before the due time', 'deadline is ' || deadline || ', and the message would be due ' || d.due || '.',
            'Allowed are the due time and later.');
    end if;
    d.hold := 'g';
    return d;
end $$;

-- Its hint names the parameter, too.
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
        if k like 'x-postdate-%' or k like 'x-opt-delivery-%' or k = 'x-delay' then
            perform postdate.refuse('headers: ' || left(k, 80) || ' is reserved', 'It would steer the gateway.',
                'Use the parameters exchange, key, on_conflict, hold, deadline and delay or due_at.');
        end if;
        if k in ('CC', 'BCC') and (jsonb_typeof(v) <> 'array'
                or exists (select from jsonb_array_elements(v) r where jsonb_typeof(r) <> 'string')) then
            perform postdate.refuse('headers: ' || k || ' is not an array of strings', 'The value is ' || postdate.shown(v::text) || '.',
                'Write more routing keys, such as ["a", "b"].');
        end if;
        size := size + 1 + octet_length(k) + postdate.check_header('headers: ' || left(k, 80), v, 1);
    end loop;
    return size;
end $$;

-- One message. Answers as the key rules say: the new id, or the id of the message that was kept.
drop function postdate.accept(text, bytea, "char", interval, timestamptz, text, jsonb, jsonb, text, text, text);
create function postdate.accept(routing_key text, body bytea, body_kind "char", delay interval, due_at timestamptz, exchange text, headers jsonb,
                                properties jsonb, key text, on_conflict text, hold text, deadline timestamptz)
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
    if deadline is not null then d := postdate.draft_deadline(d, deadline); end if;
    if d.key is not null then
        kept := postdate.key_take(d, s);
        if kept is not null then return kept; end if;
    end if;
    insert into postdate.message (due, next_at, created_at, id, hold, exchange, routing_key, key, properties, properties_json, body, deadline)
    values (d.due, d.due, now_at, d.id, d.hold, d.exchange, d.routing_key, d.key, d.properties, d.properties_json, d.body, d.deadline);
    perform postdate.after_write(s, d.due, now_at);
    return d.id;
end $$;

drop function postdate.schedule(text, text, interval, timestamptz, text, jsonb, jsonb, text, text, text);
create function postdate.schedule(routing_key text, body text, delay interval default null, due_at timestamptz default null,
                                  exchange text default null, headers jsonb default null, properties jsonb default null,
                                  key text default null, on_conflict text default 'keep', hold text default null, deadline timestamptz default null)
returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return postdate.accept(routing_key, convert_to(body, 'UTF8'), 't', delay, due_at, exchange, headers, properties, key, on_conflict, hold, deadline);
end $$;

drop function postdate.schedule(text, bytea, interval, timestamptz, text, jsonb, jsonb, text, text, text);
create function postdate.schedule(routing_key text, body bytea, delay interval default null, due_at timestamptz default null,
                                  exchange text default null, headers jsonb default null, properties jsonb default null,
                                  key text default null, on_conflict text default 'keep', hold text default null, deadline timestamptz default null)
returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return postdate.accept(routing_key, body, 't', delay, due_at, exchange, headers, properties, key, on_conflict, hold, deadline);
end $$;

drop function postdate.schedule(text, json, interval, timestamptz, text, jsonb, jsonb, text, text, text);
create function postdate.schedule(routing_key text, body json, delay interval default null, due_at timestamptz default null,
                                  exchange text default null, headers jsonb default null, properties jsonb default null,
                                  key text default null, on_conflict text default 'keep', hold text default null, deadline timestamptz default null)
returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return postdate.accept(routing_key, convert_to(body::text, 'UTF8'), 'j', delay, due_at, exchange, headers, properties, key, on_conflict, hold, deadline);
end $$;

drop function postdate.schedule(text, jsonb, interval, timestamptz, text, jsonb, jsonb, text, text, text);
create function postdate.schedule(routing_key text, body jsonb, delay interval default null, due_at timestamptz default null,
                                  exchange text default null, headers jsonb default null, properties jsonb default null,
                                  key text default null, on_conflict text default 'keep', hold text default null, deadline timestamptz default null)
returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return postdate.accept(routing_key, convert_to(body::text, 'UTF8'), 'j', delay, due_at, exchange, headers, properties, key, on_conflict, hold, deadline);
end $$;

-- One item of schedule_many: the message object of HTTP and `postdate schedule --batch`.
create or replace function postdate.draft_parse(s postdate.settings, now_at timestamptz, v jsonb) returns postdate.draft
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
    f := (select k from jsonb_object_keys(v - '{routing_key,exchange,delay_ms,delay,due_at,body,body_base64,json,headers,properties,key,on_conflict,hold,deadline}'::text[]) k limit 1);
    if f is not null then
        perform postdate.refuse('unknown field', 'It is ' || postdate.shown(f) || '.', 'Allowed are routing_key, exchange, delay_ms, delay, '
            'due_at, body, body_base64, json, headers, properties, key, on_conflict, hold, deadline.');
    end if;
    foreach f in array '{routing_key,exchange,delay,due_at,body,body_base64,key,on_conflict,hold,deadline}'::text[] loop
        if jsonb_typeof(v -> f) not in ('string', 'null') then
            perform postdate.refuse(f || ' is not a string', 'It is ' || postdate.shown(v ->> f) || '.', 'Write it as a JSON string.');
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
    if v ->> 'deadline' is null then return d; end if;
    if v ->> 'deadline' !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?([Zz]|[+-][0-9]{2}:?[0-9]{2})$' then
        perform postdate.refuse('deadline is not a time', 'It is ' || postdate.shown(v ->> 'deadline') || '.', 'Write an RFC 3339 time with an offset: 2026-11-22T08:00:00Z.');
    end if;
    return postdate.draft_deadline(d, (v ->> 'deadline')::timestamptz);
end $$;

-- The drafts of all items. Those with nothing unusual (no headers or properties, defaults for the rest) are made by expressions: a
-- function call for each would cost more than storing them.
create or replace function postdate.drafts_read(s postdate.settings, now_at timestamptz, now_ms timestamptz, messages jsonb) returns postdate.draft[]
language sql as $$
    select array_agg(case when plain
                          then row(due, postdate.id_make(due), case when s.broker_holds = 'all' then 'b' else 'g' end, coalesce(v ->> 'exchange', s.exchange),
                                   v ->> 'routing_key', v ->> 'key', 'keep', decode('100002', 'hex'), null, convert_to(v ->> 'body', 'UTF8'), null)::postdate.draft
                          else postdate.draft_parse(s, now_at, v) end order by o)
      from (select v, o, plain,
                   case when not plain then null
                        when v ? 'delay_ms' then now_ms + (v ->> 'delay_ms')::bigint * interval '1 ms'
                        else greatest(now_ms, date_bin('1 ms', (v ->> 'due_at')::timestamptz + interval '999 us', timestamptz '1970-01-01 00:00:00+00')) end as due
              from (select v, o, jsonb_typeof(v) = 'object' and v - '{routing_key,delay_ms,due_at,body,exchange,key}'::text[] = '{}'
                            and jsonb_typeof(v -> 'routing_key') = 'string' and octet_length(v ->> 'routing_key') <= 255
                            and jsonb_typeof(v -> 'body') = 'string' and octet_length(v ->> 'body') <= s.max_body
                            and case when v ? 'delay_ms' then not v ? 'due_at' and jsonb_typeof(v -> 'delay_ms') = 'number'
                                          and v ->> 'delay_ms' ~ '^[0-9]{1,13}$' and (v ->> 'delay_ms')::bigint <= s.max_delay_ms
                                     else jsonb_typeof(v -> 'due_at') = 'string'
                                          and v ->> 'due_at' ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$'
                                          and (v ->> 'due_at')::timestamptz <= now_at + s.max_delay_ms * interval '1 ms' end
                            and (not v ? 'exchange' or (jsonb_typeof(v -> 'exchange') = 'string' and octet_length(v ->> 'exchange') <= 255
                                                        and v ->> 'exchange' like any (s.allow_like)))
                            and (not v ? 'key' or (jsonb_typeof(v -> 'key') = 'string' and octet_length(v ->> 'key') between 1 and 255)) is true as plain
                      from jsonb_array_elements(messages) with ordinality a (v, o) offset 0) p offset 0) d
$$;

-- A draft whose key was taken when the batch came by: decided alone.
create or replace function postdate.draft_accept(d postdate.draft, s postdate.settings, out id uuid, out error text) language plpgsql as $$
declare
    detail text;
    hint text;
begin
    id := postdate.key_take(d, s);
    if id is not null then return; end if;
    insert into postdate.message (due, next_at, created_at, id, hold, exchange, routing_key, key, properties, properties_json, body, deadline)
    values (d.due, d.due, clock_timestamp(), d.id, d.hold, d.exchange, d.routing_key, d.key, d.properties, d.properties_json, d.body, d.deadline);
    id := d.id;
exception when unique_violation or object_not_in_prerequisite_state then
    get stacked diagnostics error = message_text, detail = pg_exception_detail, hint = pg_exception_hint;
    id := null;
    error := concat_ws(' ', error || '.', nullif(detail, ''), nullif(hint, ''));
end $$;

create or replace function postdate.schedule_many(messages jsonb) returns table (ordinal integer, id uuid, error text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    s postdate.settings;
    now_at timestamptz := clock_timestamp();
    p record;
    a record;
    r record;
    stored uuid[];
    kept uuid[];
    refused text[];
    decided boolean[];
    first_due timestamptz;
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
        select d.due, d.due, now_at, d.id, d.hold, d.exchange, d.routing_key, d.key, d.properties, d.properties_json, d.body, d.deadline
          from draft d where d.key is null or d.id in (select w.id from won w)
        returning id, due)
    select array_agg(i.id), min(i.due) into stored, first_due from inserted i;
    if cardinality(p.drafts) > 0 then
        perform postdate.after_write(s, first_due, now_at);
    end if;
    if cardinality(stored) = cardinality(p.drafts) then
        return query
            select d.o::integer, d.id, null::text
              from unnest(p.drafts) with ordinality as d (due, id, hold, exchange, routing_key, key, on_conflict, properties, properties_json, body, deadline, o);
        return;
    end if;
    -- Those whose key was taken, in the order of the keys, too.
    for r in
        select o::integer as ordinal, d.due
          from unnest(p.drafts) with ordinality as d (due, id, hold, exchange, routing_key, key, on_conflict, properties, properties_json, body, deadline, o)
          left join unnest(stored) i (id) on i.id = d.id
         where d.id is not null and i.id is null
         order by d.exchange, d.key, o
    loop
        a := postdate.draft_accept(p.drafts[r.ordinal], s);
        kept[r.ordinal] := a.id;
        refused[r.ordinal] := a.error;
        decided[r.ordinal] := true;
        perform postdate.after_write(s, r.due, now_at);
    end loop;
    return query
        select d.o::integer, case when decided[d.o] then kept[d.o] else d.id end, case when decided[d.o] then refused[d.o] when d.id is null then p.errors[d.o] end
          from unnest(p.drafts) with ordinality as d (due, id, hold, exchange, routing_key, key, on_conflict, properties, properties_json, body, deadline, o)
         order by d.o;
end $$;

-- Tried again at once. Also 'not_failed', 'key_taken'; 'too_late' after its deadline.
create or replace function postdate.do_retry(wanted uuid, scope text[], out result text, out latest uuid)
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    s postdate.settings;
    m postdate.message;
    now_at timestamptz := clock_timestamp();
begin
    select * into strict s from postdate.settings;
    m := postdate.message_lock(wanted, scope, true);
    latest := m.id;
    if m.id is null then
        result := 'not_found';
    elsif m.state = 'expired' or (m.state = 'failed' and m.deadline < now_at) then
        result := 'too_late';
    elsif m.state <> 'failed' then
        result := 'not_failed';
    elsif m.key is not null and not postdate.key_regain(m.exchange, m.key, m.id, m.id, s.key_memory_ms) then
        result := 'key_taken';
    else
        update postdate.message x
           set state = 'scheduled', settled_at = null, next_at = greatest(x.due, postdate.due_round(now_at, now_at)), attempts = 0, error = null
         where x.due = m.due and x.id = m.id;
        perform postdate.after_write(s, m.due, now_at);
        result := 'done';
    end if;
end $$;

create or replace function postdate.reschedule(id uuid, delay interval default null, due_at timestamptz default null) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    result text;
    at timestamptz := coalesce(due_at, clock_timestamp() + delay);
begin
    if (delay is null) = (due_at is null) then
        perform postdate.refuse(case when delay is null then 'the due time is missing' else 'the due time is given twice' end,
            'delay is ' || postdate.shown(delay::text) || ', due_at is ' || postdate.shown(due_at::text) || '.', 'Give exactly one of delay and due_at.');
    end if;
    result := (postdate.do_reschedule(reschedule.id, at, null, null)).result;
    if result = 'too_far' then
        perform postdate.check_due(s, clock_timestamp(), at) from postdate.settings s;
    elsif result = 'past_deadline' then
        perform postdate.refuse('the due time lies after the deadline', 'The message would be due ' || at || '.', 'Its deadline stays as it is: schedule a new message.');
    elsif result = 'key_taken' then
        perform postdate.refuse('the key is taken', 'The failed message''s key names another message by now.', 'Cancel that one first, or schedule a new message.', '23505');
    end if;
    return case result when 'done' then 'rescheduled' else result end;
end $$;

create or replace view postdate.messages as
select m.id, m.key, m.state::text as state, m.exchange, m.routing_key, m.due as due_at, m.next_at, m.created_at, m.settled_at, m.attempts,
       m.error, m.body,
       case when m.properties_json is not null then coalesce(nullif(m.properties_json -> 'headers', 'null'), '{}')
            else postdate.wire_properties(m.properties) -> 'headers' end as headers,
       case when m.properties_json is not null then '{"delivery_mode": 2}' || coalesce(nullif(m.properties_json -> 'properties', 'null'), '{}')
            else postdate.wire_properties(m.properties) -> 'properties' end as properties,
       m.deadline
  from postdate.message m;

-- What was dropped had rights.
do $$ begin perform postdate.roles_ensure(); end $$;

revoke execute on all functions in schema postdate from public;
