-- What command line, HTTP and control queue ask of rates, in JSON.

-- Of a rate for several exchanges, some of the messages that wait may be of exchanges that do not exist for this caller.
create function postdate.rate_object(v postdate.rates, scope text[]) returns text language sql stable set search_path = pg_catalog, pg_temp as $$
    select row_to_json(o)::text
      from (select v.exchange, v.routing_key, postdate.rate_shown(v.per_second) as rate, v.burst, v.paused, case when s.seen then coalesce(v.waiting, 0) end as waiting,
                   case when s.seen then postdate.recur_time_shown(v.drained_at) end as drained_at, postdate.recur_time_shown(v.changed_at) as changed_at, v.changed_by
              from (select coalesce(v.exchange = any (scope), true) as seen) s) o
$$;

-- As sql/operate/ask.h says. In the argument are the exchange, the routing key ('*'), the rate (a second) and the burst.
create function postdate.rate_ask(operation text, name text, arg text, scope text[], via text, versions text[], fresh boolean,
                                  out answer text, out outcome text, out tag text, out said text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    o json := arg;
    place text := coalesce(o ->> 'exchange', name);
    key text := coalesce(o ->> 'routing_key', '*');
    rate double precision := o ->> 'rate';
    what text := format('exchange "%s"', place) || case when key = '*' then '' else format(', routing key "%s"', key) end;
    there boolean := true;
    detail text;
    hint text;
begin
    outcome := 'done';
    case operation
    when 'list' then
        select '[' || coalesce(string_agg(postdate.rate_object(v, scope), ',' order by v.exchange, v.routing_key), '') || ']' into answer
          from postdate.rate r join postdate.rates v on (v.exchange, v.routing_key) = (r.exchange, r.routing_key)
         where scope is null or exists (select from unnest(scope) x where x like r.exchange_like);
        return;
    when 'match' then
        select postdate.rate_object(v, scope) into answer
          from postdate.rate r join postdate.rates v on (v.exchange, v.routing_key) = (r.exchange, r.routing_key)
         where r.id = postdate.rate_of(place, key) and coalesce(place = any (scope), true);
        if answer is null then
            outcome := 'not_found';
            said := format('no rate applies to messages with the exchange "%s" and the routing key "%s"', place, key);
        end if;
        return;
    when 'set' then
        perform postdate.rate_set(place, rate, (o ->> 'burst')::integer, key);
        said := what || case when rate > 0 then ' gets at most ' || postdate.rate_shown(rate) || ' from now on' else ' gets nothing from now on: set another rate, or remove it' end;
    when 'pause' then
        there := postdate.rate_pause(place, key);
        said := 'the rate of ' || what || ' is paused: no messages are delivered there until it is resumed';
    when 'resume' then
        there := postdate.rate_resume(place, key);
        said := 'the rate of ' || what || ' is resumed';
    when 'remove' then
        there := postdate.rate_remove(place, key);
        said := 'the rate of ' || what || ' is removed; messages that waited for it are delivered now';
    when 'show' then
    end case;
    if operation = 'remove' then
        answer := there;
    elsif there then
        select postdate.rate_object(v, scope) into answer
          from postdate.rate r join postdate.rates v on (v.exchange, v.routing_key) = (r.exchange, r.routing_key)
         where (r.exchange, r.routing_key) = (place, key) and (scope is null or exists (select from unnest(scope) x where x like r.exchange_like));
        there := found;
    end if;
    if not there then
        outcome := 'not_found';
        said := format('no rate is set for the exchange "%s" and the routing key "%s"', place, key);
    end if;
exception when data_exception then
    get stacked diagnostics detail = pg_exception_detail, hint = pg_exception_hint;
    outcome := 'refused';
    said := concat_ws(' ', sqlerrm || '.', nullif(detail, ''), nullif(hint, ''));
end $$;
