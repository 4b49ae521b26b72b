-- Version 22: whether an exchange is one of the gateway's own is asked in one place, also for the many that are stored at once.
create function postdate.exchange_reserved(s postdate.settings, exchange text) returns boolean language sql immutable as $$
    select (exchange = 'postdate' or starts_with(exchange, 'postdate.')) and exchange not in (s.exchange, 'postdate.delivery')
$$;

-- As before (009_reserved.sql).
create or replace function postdate.check_exchange(s postdate.settings, exchange text) returns void language plpgsql stable as $$
begin
    perform postdate.check_name('exchange', exchange);
    if not (exchange like any (s.allow_like)) then
        perform postdate.refuse('exchange is not among those that delivery.allow lists', 'exchange is ' || postdate.shown(exchange) || '.',
            'Allowed are ' || left(array_to_string(s.allow, ', '), 200) || '.');
    end if;
    if postdate.exchange_reserved(s, exchange) then
        perform postdate.refuse('exchange is one of the gateway''s own', 'exchange is ' || postdate.shown(exchange) || '.',
            'Allowed are delivery exchanges; names that begin with "postdate." are none, but for ' || postdate.shown(s.exchange) || '.');
    end if;
end $$;

-- As before (015_deadline.sql), but what names such an exchange is nothing usual.
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
                                                        and v ->> 'exchange' like any (s.allow_like) and not postdate.exchange_reserved(s, v ->> 'exchange')))
                            and (not v ? 'key' or (jsonb_typeof(v -> 'key') = 'string' and octet_length(v ->> 'key') between 1 and 255)) is true as plain
                      from jsonb_array_elements(messages) with ordinality a (v, o) offset 0) p offset 0) d
$$;
