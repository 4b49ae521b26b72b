-- How much is due when, by exchange: counted again and again, a small piece at a time, by id, so in the order of due times. Nobody who
-- stores or cancels a message writes anything for it.
create table postdate.forecast (
    at       timestamptz not null,      -- when the hour (UTC) begins
    exchange text not null,
    n        bigint not null,
    minutes  integer[] not null,        -- of the hour: each of its 60
    primary key (at, exchange)
) with (fillfactor = 70);

-- Those that have any. hour: to look for, by the index.
create view postdate.forecast_minute as
select f.at as hour, f.at + (m.i - 1) * interval '1 minute' as at, f.exchange, m.n
  from postdate.forecast f, unnest(f.minutes) with ordinality m (n, i) where m.n <> 0;

-- Rounds of counting, of all gateways together: of what is due soon, which is through in no time, and of all of it.
create table postdate.forecast_round (
    name       text primary key,
    span       interval,                -- from now on; null: as far as messages may be delayed
    counted_at timestamptz,             -- when the last one that is through began …
    through_at timestamptz,             -- … and when it was through
    began_at   timestamptz,             -- this one; null: none
    minute     timestamptz,             -- up to here counts are of this round …
    id         uuid,                    -- … and of the minute that begins there, messages up to this one are in the next two
    exchanges  text[] not null default '{}',
    n          integer[] not null default '{}'
);
insert into postdate.forecast_round (name, span) values ('soon', '2 hours'), ('all', null);

-- An hour's minutes, of which those from `first` on and before `ends` are counted anew: so many (n) in these (which).
create function postdate.forecast_hour(minutes integer[], first integer, ends integer, which integer[], n integer[]) returns integer[]
language plpgsql immutable as $$
begin
    minutes := coalesce(minutes, array_fill(0, '{60}'));
    for i in first + 1 .. ends loop
        minutes[i] := 0;
    end loop;
    for i in 1 .. coalesce(cardinality(which), 0) loop
        minutes[which[i] + 1] := n[i];
    end loop;
    return minutes;
end $$;

-- When a round of all may begin; null: at once, for the last one was through soon. Else later by three times as long as that took, an hour at most: millions that
-- wait would be counted all the time.
create function postdate.forecast_begins(r postdate.forecast_round) returns timestamptz language sql immutable as $$
    select case when r.span is null and r.through_at > r.counted_at + interval '20 s' then r.through_at + least(3 * (r.through_at - r.counted_at), interval '1 h') end
$$;

-- The next `most` messages of a round, and of so many days at most (each of them costs, though nothing is due). False: it is through, or
-- another gateway is at it.
create function postdate.forecast_count(round text, days integer, most bigint) returns boolean
language plpgsql set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    soonest timestamptz := date_trunc('minute', now()) + interval '1 minute';
    r postdate.forecast_round;
    last_due timestamptz;
    until timestamptz;
    ends timestamptz;
    last_id uuid;
begin
    select * into r from postdate.forecast_round x where x.name = round for update skip locked;
    if not found then return false; end if;
    -- A clock that was set back keeps nobody waiting.
    if r.began_at is null and r.through_at <= now() and postdate.forecast_begins(r) > now() then return false; end if;
    select now() + coalesce(r.span, s.max_delay_ms * interval '1 ms') into last_due from postdate.settings s;
    r.began_at := coalesce(r.began_at, now());
    if r.minute is null or r.minute < soonest then
        r.minute := soonest;
        r.id := postdate.id_floor(soonest);
        r.exchanges := '{}';
        r.n := '{}';
    end if;
    until := date_trunc('day', r.minute, 'UTC') + days * interval '1 day';
    if r.span is not null then until := least(until, date_trunc('minute', last_due) + interval '1 minute'); end if;
    -- An id begins with its due time: the last one of a full piece tells how far it goes.
    with piece as materialized (
        select x.id, x.exchange, date_trunc('minute', x.due) as at, x.settled_at is null as waits from postdate.message x
         where x.id > r.id and x.id < postdate.id_floor(until) order by x.id limit most),
    last as materialized (select p.id, p.at from piece p offset most - 1 limit 1),
    border as materialized (select l.id, coalesce(l.at, until) as at from (select) one left join last l on true),
    counted as materialized (
        select c.exchange, c.at, sum(c.n)::int as n from (
            select p.exchange, p.at, count(*) as n from piece p where p.waits group by 1, 2
            union all
            select p.exchange, r.minute, p.n from unnest(r.exchanges, r.n) as p (exchange, n)) c
         group by 1, 2),
    hour as (
        select c.exchange, date_trunc('hour', c.at, 'UTC') as at, array_agg(extract(minute from c.at at time zone 'UTC')::int) as which, array_agg(c.n) as n
          from counted c where c.at < (select at from border) group by 1, 2),
    kept as (
        select f.at, f.exchange, f.minutes from postdate.forecast f where f.at > r.minute - interval '1 hour' and f.at < (select at from border)),
    again as (
        select at, exchange, k.minutes as before,
               postdate.forecast_hour(k.minutes, greatest(0, extract(epoch from r.minute - at) / 60)::int,
                                      least(60, extract(epoch from (select b.at from border b) - at) / 60)::int, h.which, h.n) as minutes
          from hour h full join kept k using (at, exchange)),
    written as (
        insert into postdate.forecast as f (at, exchange, n, minutes)
        select a.at, a.exchange, (select sum(x) from unnest(a.minutes) x), a.minutes from again a where a.minutes is distinct from a.before
            on conflict (at, exchange) do update set n = excluded.n, minutes = excluded.minutes)
    select b.id, b.at, o.exchanges, o.n into last_id, ends, r.exchanges, r.n from border b cross join lateral (
        select coalesce(array_agg(c.exchange), '{}') as exchanges, coalesce(array_agg(c.n), '{}') as n from counted c where c.at >= b.at) o;
    if last_id is null and ends > last_due then
        update postdate.forecast_round x set counted_at = r.began_at, through_at = now(), began_at = null, minute = null where x.name = round;
        delete from postdate.forecast where at < now() - interval '2 days';
        return false;
    end if;
    update postdate.forecast_round x
       set began_at = r.began_at, minute = ends, id = coalesce(last_id, postdate.id_floor(until)), exchanges = r.exchanges, n = r.n
     where x.name = round;
    return true;
end $$;

-- The same around days that somebody has locked: such a one stays as it was, and the next round will do.
create function postdate.forecast_piece(round text, days integer, most bigint) returns boolean language plpgsql as $$
begin
    return postdate.forecast_count(round, days, most);
exception when lock_not_available then
    if days > 1 then return postdate.forecast_piece(round, 1, most); end if;
    update postdate.forecast_round x
       set began_at = coalesce(x.began_at, now()), exchanges = '{}', n = '{}', minute = d.next, id = postdate.id_floor(d.next)
      from (select date_trunc('day', coalesce(y.minute, now()), 'UTC') + interval '1 day' as next from postdate.forecast_round y where y.name = round) d
     where x.name = round;
    return true;
end $$;
