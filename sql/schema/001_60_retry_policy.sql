-- What consumers refused. Their queues dead-letter to postdate.retry; it goes back to the very queue after a wait, and is
-- kept as a dead letter when no attempt is left.

-- How often and after which waits, by the name of the queue ('*' matches any run of characters). The longest pattern that matches
-- counts; without one the built-in default (core/message/retry_policy.c), which retry_policy_set() has as its defaults, too.
create table postdate.retry_policy (
    pattern    text primary key check (octet_length(pattern) between 1 and 255),
    attempts   integer not null check (attempts between 1 and 1000),             -- deliveries in all
    first      interval not null check (first between '0' and '365 days'),
    max        interval not null check (max between first and '365 days'),
    factor     double precision not null check (factor between 1 and 100),
    jitter     integer not null check (jitter between 0 and 100),                -- percent
    reasons    text[] not null check (reasons <@ '{rejected,delivery_limit,expired,maxlen}' and array_position(reasons, null) is null),
    keep_dead  interval not null check (keep_dead between '0' and '3650 days'),
    changed_at timestamptz not null default clock_timestamp(),
    changed_by text not null default session_user
);

-- The policy of a queue, as core/message/retry_policy.c finds it; null: the built-in default.
create function postdate.retry_policy_of(queue text) returns postdate.retry_policy language sql stable set search_path = pg_catalog, pg_temp as $$
    select p from postdate.retry_policy p
     where retry_policy_of.queue like replace(replace(replace(replace(p.pattern, E'\\', E'\\\\'), '%', E'\\%'), '_', E'\\_'), '*', '%')
     order by octet_length(p.pattern) desc, p.pattern collate "C" limit 1
$$;

create function postdate.retry_policy_set(pattern text, attempts integer default 10, first interval default '1 s', factor double precision default 2,
    max interval default '1 h', jitter integer default 10, reasons text[] default '{rejected,delivery_limit}', keep_dead interval default '30 d')
returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if (select count(*) from postdate.retry_policy p where p.pattern <> retry_policy_set.pattern) >= 10000 then
        perform postdate.refuse('there are too many retry policies', 'There are 10000.', 'Set one for several queues, with *, or remove some.');
    end if;
    insert into postdate.retry_policy (pattern, attempts, first, factor, max, jitter, reasons, keep_dead, changed_by)
    values (retry_policy_set.pattern, retry_policy_set.attempts, retry_policy_set.first, retry_policy_set.factor, retry_policy_set.max,
            retry_policy_set.jitter, retry_policy_set.reasons, retry_policy_set.keep_dead, session_user)
    on conflict on constraint retry_policy_pkey do update
       set attempts = excluded.attempts, first = excluded.first, factor = excluded.factor, max = excluded.max, jitter = excluded.jitter,
           reasons = excluded.reasons, keep_dead = excluded.keep_dead, changed_at = clock_timestamp(), changed_by = excluded.changed_by;
end $$;

create function postdate.retry_policy_remove(pattern text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    delete from postdate.retry_policy p where p.pattern = retry_policy_remove.pattern;
    return found;
end $$;

-- What command line, HTTP and control queue ask of policies, in JSON.

create function postdate.retry_policy_default() returns postdate.retry_policy language sql immutable as $$
    select row('*', 10, '1 s', '1 h', 2, 10, '{rejected,delivery_limit}', '30 d', null, null)::postdate.retry_policy
$$;

-- "1h30m"; what is no whole number of days begins with hours: "26h". As core/base/duration.h.
create function postdate.duration_shown(ms bigint) returns text language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case when ms = 0 then '0s' when ms % 86400000 = 0 then ms / 86400000 || 'd'
           else concat(nullif(ms / 3600000, 0) || 'h', nullif(ms / 60000 % 60, 0) || 'm', nullif(ms / 1000 % 60, 0) || 's', nullif(ms % 1000, 0) || 'ms') end
$$;
create function postdate.duration_shown(value interval) returns text language sql immutable as $$
    select postdate.duration_shown((extract(epoch from value) * 1000)::bigint)
$$;

-- The members of its object.
create function postdate.retry_policy_members(p postdate.retry_policy) returns text language sql stable set search_path = pg_catalog, pg_temp as $$
    select substr(left(row_to_json(o)::text, -1), 2)
      from (select p.pattern, p.attempts, postdate.duration_shown(p.first) as first, (p.factor::numeric || case when p.factor = trunc(p.factor) then '.0' else '' end)::json as factor,
                   postdate.duration_shown(p.max) as max, p.jitter, array(select r from unnest('{rejected,delivery_limit,expired,maxlen}'::text[]) r where r = any (p.reasons)) as on,
                   postdate.duration_shown(p.keep_dead) as keep_dead) o
$$;

-- Its waits without jitter, as core/message/retry_policy.c computes them.
create function postdate.retry_policy_waits(p postdate.retry_policy) returns text[] language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    wait double precision := extract(epoch from p.first) * 1000;
    most double precision := extract(epoch from p.max) * 1000;
    waits text[] := '{}';
begin
    for i in 2 .. p.attempts loop
        waits := waits || postdate.duration_shown(trunc(least(wait, most))::bigint);
        if wait < most then wait := wait * p.factor; end if;
    end loop;
    return waits;
end $$;

-- As sql/operate/ask.h says. In the argument are the queue, to find its policy, or what is set: durations in ms, reasons as the sum of
-- core/message/retry_policy.h. `default` answers the built-in one; of `match`, the waits are said.
create function postdate.retry_policy_ask(operation text, name text, arg text, scope text[], via text, versions text[], fresh boolean,
                                          out answer text, out outcome text, out tag text, out said text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    o json := arg;
    p postdate.retry_policy;
    waits text[];
begin
    outcome := 'done';
    case operation
    when 'list' then
        select '[' || coalesce(string_agg('{' || postdate.retry_policy_members(l.r) || '}', ',' order by (l.r).pattern), '') || ']' into answer
          from (select r from postdate.retry_policy r order by r.pattern limit 10000) l;
        return;
    when 'default' then
        answer := '{' || postdate.retry_policy_members(postdate.retry_policy_default()) || ',"is_default":true}';
        return;
    when 'match' then
        if coalesce(o ->> 'queue', '') = '' then
            outcome := 'refused';
            said := 'queue: name a queue (1 to 255 bytes)';
            return;
        end if;
        select * into p from postdate.retry_policy_of(o ->> 'queue');
        answer := format('{"queue":%s,"is_default":%s,', o -> 'queue', to_json(p.pattern is null));
        if p.pattern is null then p := postdate.retry_policy_default(); end if;
        waits := postdate.retry_policy_waits(p);
        answer := answer || postdate.retry_policy_members(p) || ',"waits":' || to_json(waits[1:100]) || '}';
        said := case when p.attempts = 1 then 'none: the first refusal is the last'
                     else array_to_string(waits[1:12], ', ') || case when p.attempts > 13 then ' … ' || waits[p.attempts - 1] else '' end
                          || case when p.jitter > 0 then format(' (each up to %s%% shorter or longer)', p.jitter) else '' end end;
        return;
    when 'set' then
        perform postdate.retry_policy_set(name, (o ->> 'attempts')::integer, (o ->> 'first')::bigint * interval '1 ms', round((o ->> 'factor')::numeric, 3)::double precision,
            (o ->> 'max')::bigint * interval '1 ms', (o ->> 'jitter')::integer,
            array(select r from unnest('{rejected,delivery_limit,expired,maxlen}'::text[]) with ordinality x (r, n) where (o ->> 'on')::integer & (1 << (n - 1)::integer) > 0),
            (o ->> 'keep_dead')::bigint * interval '1 ms');
        said := format('retry policy "%s" is set; it applies to messages rejected from now on', name);
    when 'remove' then
        answer := nullif(postdate.retry_policy_remove(name), false);
        said := format('retry policy "%s" is removed', name);
    when 'show' then
    end case;
    if operation <> 'remove' then
        select '{' || postdate.retry_policy_members(r) || '}' into answer from postdate.retry_policy r where r.pattern = name;
    end if;
    if answer is null then
        outcome := 'not_found';
        said := format('no retry policy has the pattern "%s"', name);
    end if;
end $$;
