-- Rates: limits of the messages per second that an exchange gets. Messages above the rate are delivered later, in the order of due times (docs/internals/rates.md).
--
-- A message whose exchange has a rate WAITS FOR A SLOT from shortly before it is due: its row has `rate`, and a next_at after its deadline (postdate.rate_until), so
-- no claim by time finds it before that; the claim after the deadline ends it, even if the rate is paused. A claim of a portion takes the slots for it from the row
-- of the rate, in the same statement.

-- Longer names first; of the same length the one without '*'.
create function postdate.rate_rank(pattern text) returns integer language sql immutable set search_path = pg_catalog, pg_temp as $$
    select 2 * octet_length(replace(pattern, '*', '')) + (strpos(pattern, '*') = 0)::int
$$;

-- '*' matches any run of characters in `exchange` and `routing_key`. Of several that match, the one with the most other characters applies; those of the exchange
-- first.
create table postdate.rate (
    changed_at    timestamptz not null default clock_timestamp(),
    slot_at       timestamptz not null default clock_timestamp(), -- the next slot; slots that have passed are lost, except for a burst
    per_second    double precision not null check (per_second between 0.0001 and 1000000 or per_second = 0 and paused),
    id            integer generated always as identity primary key,
    from_id       uuid not null default '00000000-0000-0000-0000-000000000000', -- the last claimed id: waiting messages mostly begin there
    burst         integer not null check (burst between 1 and 1000000), -- how many passed slots may be used later
    paused        boolean not null default false,
    removed       boolean not null default false,                  -- waiting messages are released; then the row is deleted
    exchange      text not null check (octet_length(exchange) <= 255),
    routing_key   text not null check (octet_length(routing_key) <= 255),
    changed_by    text not null default session_user,
    exchange_like text not null generated always as (replace(replace(replace(replace(exchange, E'\\', E'\\\\'), '%', E'\\%'), '_', E'\\_'), '*', '%')) stored,
    routing_like  text not null generated always as (replace(replace(replace(replace(routing_key, E'\\', E'\\\\'), '%', E'\\%'), '_', E'\\_'), '*', '%')) stored,
    exchange_rank integer not null generated always as (postdate.rate_rank(exchange)) stored,
    routing_rank  integer not null generated always as (postdate.rate_rank(routing_key)) stored,
    unique (exchange, routing_key)
) with (fillfactor = 50); -- a portion changes it in place

-- The rate of a message; null: none. It sets no search_path, which costs more than all the rest: each name is exactly one of pg_catalog.
create function postdate.rate_of(exchange text, routing_key text) returns integer language plpgsql stable as $$
begin
    return (select r.id from postdate.rate r
             where not r.removed and rate_of.exchange like r.exchange_like and rate_of.routing_key like r.routing_like
             order by r.exchange_rank desc, r.routing_rank desc, r.id limit 1);
end $$;

-- Was a due message delayed by a rate that was removed since? Then its lateness counts from its release. Inlined.
create function postdate.rate_kept_back(exchange text, routing_key text, due timestamptz) returns boolean language sql stable as $$
    select exists (select from postdate.rate r
                    where r.removed and r.changed_at > rate_kept_back.due
                      and rate_kept_back.exchange like r.exchange_like and rate_kept_back.routing_key like r.routing_like)
$$;

-- The time of the next slot. Slots are taken at most half a second ahead, so a slot that is farther ahead than that plus one interval was given by a clock that was
-- ahead: then it is now. Inlined.
create function postdate.rate_next(slot_at timestamptz, per_second double precision, now_at timestamptz) returns timestamptz language sql stable set search_path = pg_catalog, pg_temp as $$
    select case when slot_at > now_at + interval '1 s' + coalesce(1 / nullif(per_second, 0), 0) * interval '1 s' then now_at else slot_at end
$$;

-- The first of the next slots: slots that were not taken in time are lost, except for the burst.
create function postdate.rate_first(r postdate.rate, now_at timestamptz) returns timestamptz language sql stable set search_path = pg_catalog, pg_temp as $$
    select greatest(postdate.rate_next(r.slot_at, r.per_second, now_at), now_at - (r.burst - 1) / nullif(r.per_second, 0) * interval '1 s')
$$;

-- Where the search for waiting messages begins: after the dead index entries of the last claimed ones; at the latest a second ago, because messages due at once are
-- stored below those claimed ahead of their time.
create function postdate.rate_from(from_id uuid, now_at timestamptz) returns uuid language sql stable as $$
    select least(from_id, postdate.id_floor(now_at - interval '1 s'))
$$;

-- Sets or changes a rate, at once, also for waiting messages. per_second 0 pauses. burst null: a fiftieth of the rate, at least 1.
create function postdate.rate_set(exchange text, per_second double precision, burst integer default null, routing_key text default '*') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    slots integer := coalesce(burst, greatest(1, least(1000000, floor(per_second / 50)))::integer);
begin
    perform postdate.check_name('exchange', exchange);
    perform postdate.check_name('routing_key', routing_key);
    if not coalesce(per_second = 0 or per_second between 0.0001 and 1000000, false) then
        perform postdate.refuse('a rate is out of range', 'per_second is ' || coalesce(per_second::text, 'null') || '.', 'Allowed are 0, which pauses, and 0.0001 to 1000000 a second.');
    end if;
    if slots not between 1 and 1000000 then
        perform postdate.refuse('a burst is out of range', 'burst is ' || slots || '.', 'Allowed are 1 to 1000000 messages.');
    end if;
    if (select count(*) from postdate.rate r where not r.removed and (r.exchange, r.routing_key) <> (rate_set.exchange, rate_set.routing_key)) >= 200 then
        perform postdate.refuse('there are too many rates', 'There are 200.', 'Set one for several exchanges, with *, or remove some.');
    end if;
    insert into postdate.rate as r (exchange, routing_key, per_second, burst, paused, changed_by)
    values (rate_set.exchange, rate_set.routing_key, rate_set.per_second, slots, rate_set.per_second = 0, session_user)
    on conflict on constraint rate_exchange_routing_key_key do update
       set per_second = excluded.per_second, burst = excluded.burst, paused = excluded.paused, removed = false, changed_at = clock_timestamp(), changed_by = excluded.changed_by,
           slot_at = least(r.slot_at, clock_timestamp());
    perform postdate.wake(); -- gateways read rates once a second; this notifies waiting ones
end $$;

-- These exchanges get no messages until it is resumed. False: there is no such rate.
create function postdate.rate_pause(exchange text, routing_key text default '*') returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update postdate.rate r set paused = true, changed_at = clock_timestamp(), changed_by = session_user
     where r.exchange = rate_pause.exchange and r.routing_key = rate_pause.routing_key and not r.removed;
    return found;
end $$;

-- Waiting messages are delivered at the rate.
create function postdate.rate_resume(exchange text, routing_key text default '*') returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from postdate.rate r where r.exchange = rate_resume.exchange and r.routing_key = rate_resume.routing_key and not r.removed and r.per_second = 0) then
        perform postdate.refuse('the rate is 0', 'It was set to 0, which pauses.', 'Set another rate, or remove it.');
    end if;
    update postdate.rate r set paused = false, slot_at = least(r.slot_at, clock_timestamp()), changed_at = clock_timestamp(), changed_by = session_user
     where r.exchange = rate_resume.exchange and r.routing_key = rate_resume.routing_key and not r.removed;
    if not found then return false; end if;
    perform postdate.wake();
    return true;
end $$;

-- Waiting messages are released at once.
create function postdate.rate_remove(exchange text, routing_key text default '*') returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update postdate.rate r set removed = true, paused = false, per_second = greatest(r.per_second, 1), slot_at = least(r.slot_at, clock_timestamp()), changed_at = clock_timestamp(), changed_by = session_user
     where r.exchange = rate_remove.exchange and r.routing_key = rate_remove.routing_key and not r.removed;
    if not found then return false; end if;
    perform postdate.wake();
    return true;
end $$;

-- How many wait for a slot of the rate, counted up to most; null: a day is locked.
create function postdate.rate_waiting(rate_id integer, most bigint) returns bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    return (select count(*) from (select from postdate.message m where m.rate = rate_id and m.settled_at is null order by m.rate, m.id limit most) w);
exception
    when lock_not_available then return null;
end $$;

-- The approximate slot of a waiting message, if nothing is cancelled or changed; null: it waits for none, or its rate is paused.
create function postdate.rate_slot(id uuid) returns timestamptz
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    r postdate.rate;
    before_ bigint;
begin
    select x.* into r from postdate.rate x join postdate.message m on m.rate = x.id where m.id = rate_slot.id and m.settled_at is null and not x.paused;
    if not found then return null; end if;
    select count(*) into before_ from (select from postdate.message m where m.rate = r.id and m.settled_at is null and m.id < rate_slot.id order by m.rate, m.id limit 1000000) w;
    return greatest(postdate.rate_next(r.slot_at, r.per_second, clock_timestamp()), clock_timestamp()) + case when r.removed then '0' else before_ / r.per_second * interval '1 s' end;
end $$;

-- A rate as users write it: in the shortest unit in which it is at least one and has at most two decimals; else with nine digits.
create function postdate.rate_shown(per_second double precision) returns text language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case when per_second <= 0 then '0' else coalesce(
               (select round(x.n * 100) / 100 || '/' || u.unit from (values (1, 's'), (60, 'min'), (3600, 'h'), (86400, 'd')) u (seconds, unit), lateral (select per_second * u.seconds as n) x
                 where x.n >= 1 - 1e-9 and abs(x.n * 100 - round(x.n * 100)) <= x.n * 1e-7 order by u.seconds limit 1),
               (select trim_scale(round(x.n::numeric, 8 - floor(log(x.n::numeric))::integer)) || x.unit
                  from (select case when per_second >= 1 then per_second else per_second * 3600 end as n, case when per_second >= 1 then '/s' else '/h' end as unit) x)) end
$$;

create view postdate.rates as
select r.exchange, r.routing_key, r.per_second, r.burst, r.paused, w.waiting,
       case when not r.paused and w.waiting > 0 then greatest(postdate.rate_next(r.slot_at, r.per_second, clock_timestamp()), clock_timestamp()) + (w.waiting - 1) / r.per_second * interval '1 s' end as drained_at,
       r.changed_at, r.changed_by
  from postdate.rate r, lateral (select postdate.rate_waiting(r.id, 1000000) as waiting) w
 where not r.removed;
