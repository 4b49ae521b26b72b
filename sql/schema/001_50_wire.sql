-- AMQP's bytes as JSON, for people (gateway/json/json_message.c says the same of them).

create function postdate.wire_number(b bytea, at integer, len integer) returns numeric language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    n numeric := 0;
begin
    for i in 0..len - 1 loop n := n * 256 + get_byte(b, at + i); end loop;
    return n;
end $$;

create function postdate.wire_text(b bytea) returns jsonb language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return to_jsonb(convert_from(b, 'UTF8'));
exception when others then
    return jsonb_build_object('!bytes', replace(encode(b, 'base64'), chr(10), ''));
end $$;

create function postdate.wire_double(b bytea, at integer, len integer) returns jsonb language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    bits bit varying := ('x' || encode(substr(b, at + 1, len), 'hex'))::bit varying;
    wide boolean := len = 8;
    e integer := case when wide then substring(bits from 2 for 11)::bit(11)::integer else substring(bits from 2 for 8)::bit(8)::integer end;
    f double precision := case when wide then substring(bits from 13)::bit(52)::bigint / 4503599627370496.0::double precision
                               else substring(bits from 10)::bit(23)::integer / 8388608.0::double precision end;
    top integer := case when wide then 2047 else 255 end;
    bias integer := case when wide then 1023 else 127 end;
    v double precision;
begin
    if e = top then
        return to_jsonb(case when f > 0 then 'NaN' when get_bit(b, at * 8 + 7) = 1 then '-Infinity' else 'Infinity' end);
    end if;
    -- in two steps: the power of the smallest numbers is none itself
    v := case when e = 0 then f else f + 1 end;
    e := case when e = 0 then 1 else e end - bias;
    v := v * power(2::double precision, e / 2) * power(2::double precision, e - e / 2);
    return to_jsonb(case when get_bit(b, at * 8 + 7) = 1 then -v else v end);
end $$;

-- One value of kind k at `at`; next is behind it.
create function postdate.wire_value(b bytea, k text, at integer, out value jsonb, out next integer) language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    len integer := case k when 't' then 1 when 'b' then 1 when 'B' then 1 when 's' then 2 when 'u' then 2 when 'I' then 4 when 'i' then 4
                          when 'f' then 4 when 'l' then 8 when 'L' then 8 when 'T' then 8 when 'd' then 8 when 'D' then 5 when 'V' then 0 end;
    n numeric;
    start integer := at;
    list jsonb[] := '{}'; -- appended to in place, as a jsonb can't be: 100,000 entries must not take minutes
begin
    if len is null then
        len := postdate.wire_number(b, at, 4);
        start := at + 4;
    end if;
    next := start + len;
    case
    when k = 'V' then value := 'null';
    when k = 't' then value := to_jsonb(get_byte(b, at) <> 0);
    when k = 'S' then value := postdate.wire_text(substr(b, start + 1, len));
    when k = 'F' then value := postdate.wire_table(b, start, next);
    when k = 'A' then
        while start < next loop
            declare one record;
            begin
                one := postdate.wire_value(b, chr(get_byte(b, start)), start + 1);
                list := array_append(list, one.value);
                start := one.next;
            end;
        end loop;
        value := to_jsonb(list);
    when k = 'x' then value := jsonb_build_object('!bytes', replace(encode(substr(b, start + 1, len), 'base64'), chr(10), ''));
    when k in ('f', 'd') then value := postdate.wire_double(b, at, len);
    else
        n := case when k = 'D' then postdate.wire_number(b, at + 1, 4) else postdate.wire_number(b, at, len) end;
        if k in ('b', 's', 'I', 'l', 'D', 'L') and n >= power(2::numeric, case when k = 'D' then 31 else len * 8 - 1 end) then
            n := n - power(2::numeric, case when k = 'D' then 32 else len * 8 end);
        end if;
        value := to_jsonb(case when k = 'D' then n / power(10::numeric, get_byte(b, at)) else trunc(n) end);
    end case;
end $$;

create function postdate.wire_table(b bytea, start integer, stop integer) returns jsonb language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    names text[] := '{}';
    list jsonb[] := '{}';
    at integer := start;
    len integer;
    name text;
    one record;
begin
    while at < stop loop
        len := get_byte(b, at);
        name := postdate.wire_text(substr(b, at + 2, len)) #>> '{}';
        at := at + 1 + len;
        one := postdate.wire_value(b, chr(get_byte(b, at)), at + 1);
        names := array_append(names, name);
        list := array_append(list, one.value);
        at := one.next;
    end loop;
    -- of duplicates the first counts
    return coalesce((select jsonb_object_agg(k, v order by o desc) from unnest(names, list) with ordinality e (k, v, o)), '{}');
end $$;

-- {"headers":…,"properties":…} of stored properties; null where they can't be read.
create function postdate.wire_properties(b bytea) returns jsonb language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    names text[] := '{content_type,content_encoding,headers,delivery_mode,priority,correlation_id,reply_to,expiration,message_id,timestamp,type,user_id,app_id,cluster_id}';
    flags integer;
    at integer := 2;
    len integer;
    found_ jsonb := '{}';
    headers jsonb := '{}';
    v jsonb;
begin
    if octet_length(b) < 2 then return jsonb_build_object('headers', headers, 'properties', found_); end if;
    flags := get_byte(b, 0) * 256 + get_byte(b, 1);
    for i in 1..14 loop
        continue when flags & (32768 >> (i - 1)) = 0;
        case names[i]
        when 'headers' then
            len := postdate.wire_number(b, at, 4);
            headers := postdate.wire_table(b, at + 4, at + 4 + len);
            at := at + 4 + len;
            continue;
        when 'delivery_mode', 'priority' then
            v := to_jsonb(get_byte(b, at));
            at := at + 1;
        when 'timestamp' then
            v := to_jsonb(postdate.wire_number(b, at, 8));
            at := at + 8;
        else
            len := get_byte(b, at);
            v := postdate.wire_text(substr(b, at + 2, len));
            at := at + 1 + len;
        end case;
        found_ := found_ || jsonb_build_object(names[i], v);
    end loop;
    return jsonb_build_object('headers', headers, 'properties', found_);
exception when data_exception or array_subscript_error then
    return null;
end $$;
