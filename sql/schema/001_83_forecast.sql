-- How much is due when, by exchange, without reading the messages. Whoever stores or cancels messages appends a row that says
-- by how much minutes change: no row that two would queue on. A janitor adds those up; a slow count corrects what they missed.
create table postdate.forecast (
    grain    integer not null,          -- seconds: 60, 3600, 86400
    at       timestamptz not null,      -- when the minute, hour or day (UTC) begins
    exchange text not null,
    n        bigint not null,
    primary key (grain, at, exchange)
) with (fillfactor = 70);

-- It has a primary key so that its rows can be deleted beside a publication for all tables.
create table postdate.forecast_change (
    exchanges text[] not null,
    minutes   integer[] not null,       -- since 1970
    n         integer[] not null,
    id        bigint generated always as identity primary key
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create table postdate.forecast_state (
    one        boolean primary key default true check (one),
    folded_at  timestamptz,             -- up to when changes are in the counts
    counted_at timestamptz              -- when the slow count had seen all of them, the last time
);
insert into postdate.forecast_state default values;

-- One at a time, from SQL functions, recurring schedules, retries. What the programs store by COPY they note themselves, a row for
-- each batch, and say so: a row trigger's condition costs a COPY nothing that could be measured, the trigger 10 µs a message.
-- It sets no search_path: that took 40 µs of the 140 that one `schedule` took. So each name and type is exactly one of pg_catalog, which is looked at first.
create function postdate.forecast_note() returns trigger language plpgsql as $$
begin
    insert into postdate.forecast_change (exchanges, minutes, n)
    values (array[new.exchange], array[floor(extract(epoch from new.due) / 60::numeric)::integer],
        array[case when tg_op = 'INSERT'::text then 1 else -1 end]);
    return null;
end $$;

create trigger forecast_stored after insert on postdate.message for each row
    when (current_setting('postdate.forecast_noted', true) is distinct from 'yes') execute function postdate.forecast_note();
-- Only what is cancelled or superseded loses its body: claims and settling do not name the column.
create trigger forecast_ended after update of body on postdate.message for each row
    when (old.settled_at is null and new.state in ('cancelled', 'superseded')) execute function postdate.forecast_note();

-- Adds up changes of about so many minutes, at least one row; returns whether there may be more. Not when another gateway is at it.
create function postdate.forecast_fold(most bigint) returns boolean language plpgsql as $$
declare
    minutes bigint;
begin
    perform from postdate.gate where name = 'forecast fold' for update skip locked;
    if not found then return false; end if;
    with piece as materialized (
        select s.ctid from (select c.ctid, sum(cardinality(c.n)) over (rows unbounded preceding) - cardinality(c.n) as before
                              from (select ctid, n from postdate.forecast_change limit most) c) s
         where s.before < most),
    gone as (
        delete from postdate.forecast_change where ctid = any (array(select ctid from piece)) returning *),
    change as (
        select t.exchange, t.minute::bigint * 60 as at, sum(t.n) as n from gone, unnest(gone.exchanges, gone.minutes, gone.n) as t (exchange, minute, n)
         group by 1, 2 having sum(t.n) <> 0),
    counted as (
        insert into postdate.forecast as f (grain, at, exchange, n)
        select g, to_timestamp(c.at / g * g), c.exchange, sum(c.n)
          from change c, unnest('{60,3600,86400}'::int[]) g group by 1, 2, 3
        on conflict (grain, at, exchange) do update set n = f.n + excluded.n)
    select coalesce(sum(cardinality(n)), 0) into minutes from gone;
    if minutes >= most then return true; end if;
    update postdate.forecast_state set folded_at = now();
    delete from postdate.forecast where grain = 60 and at < now() - interval '1 hour';
    delete from postdate.forecast where grain = 3600 and at < now() - interval '2 hours';
    delete from postdate.forecast where grain = 86400 and at < now() - interval '2 days';
    return false;
end $$;

-- Counts what really waits from a minute on, about `most` of it and of so many days at most (each of them costs, though nothing is due). Notes the
-- difference. Returns where to go on; null: at the end.
create function postdate.forecast_correct(since timestamptz, days integer, most bigint) returns timestamptz
language plpgsql set plan_cache_mode = force_custom_plan set enable_seqscan = off as $$
declare
    begins timestamptz := date_trunc('minute', greatest(since, now())) + interval '1 minute';
    until timestamptz := date_trunc('day', begins, 'UTC') + days * interval '1 day';
    ends timestamptz;
    first_id uuid;
    last_due timestamptz;
begin
    perform from postdate.gate where name = 'forecast count' for update skip locked;
    if not found then return since; end if;
    first_id := postdate.id_floor(begins);
    -- An id begins with its due time. All that is due in the minute at which this many are reached belongs to the next piece.
    select date_trunc('minute', x.due) into ends from postdate.message x where x.id >= first_id and x.id < postdate.id_floor(until)
     order by x.id offset most limit 1;
    ends := coalesce(ends, until);
    if ends <= begins then ends := begins + interval '1 minute'; end if;
    insert into postdate.forecast_change
    select array_agg(d.exchange), array_agg(d.minute), array_agg(d.n::int) from (
        select s.exchange, s.minute, sum(s.n) as n from (
            select x.exchange, (extract(epoch from x.due) / 60)::int as minute, x.n from (
                select m.exchange, date_trunc('minute', m.due) as due, count(*) as n from postdate.message m
                 where m.id >= first_id and m.id < postdate.id_floor(ends) and m.settled_at is null group by 1, 2) x
            union all
            select f.exchange, (extract(epoch from f.at) / 60)::int, -f.n from postdate.forecast f
             where f.grain = 60 and f.at >= begins and f.at < ends
            union all
            select t.exchange, t.minute, -t.n from postdate.forecast_change c, unnest(c.exchanges, c.minutes, c.n) as t (exchange, minute, n)
             where t.minute >= extract(epoch from begins) / 60 and t.minute < extract(epoch from ends) / 60) s
         group by 1, 2 having sum(s.n) <> 0) d
     having count(*) > 0;
    select now() + s.max_delay_ms * interval '1 ms' into last_due from postdate.settings s;
    if ends <= last_due then return ends - interval '1 minute'; end if;
    update postdate.forecast_state set counted_at = now();
    return null;
end $$;
