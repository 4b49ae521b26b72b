-- Version 22: no promise hangs on an advisory lock, for every login of the database may take one. Whoever must be alone locks a row of this
-- table; batches of the intake and those with redeliveries lock the table itself, in modes that exclude each other (sql/pipeline/store_dedupe.c).
create table postdate.gate (
    name text primary key
);
insert into postdate.gate values ('partitions'), ('forecast fold'), ('forecast count'), ('recurring schedules');

-- A gateway whose lease ran out stops publishing by itself. One whose session is gone does so at once; where its number belongs to somebody
-- else's session by now, the lease alone tells.
create function postdate.instance_lives(i postdate.instance, lease_ms bigint) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select i.heartbeat_at > clock_timestamp() - lease_ms * interval '1 ms' and exists (select from pg_stat_get_activity(i.backend_pid))
$$;

create or replace function postdate.owner_lives(owner integer) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select exists (select from postdate.instance i where i.id = owner and i.heartbeat_at > clock_timestamp() - interval '30 s')
$$;

-- As before (018_3_forecast.sql), but for the lock.
create or replace function postdate.forecast_fold(most bigint) returns bigint language plpgsql as $$
declare
    folded bigint;
begin
    perform from postdate.gate where name = 'forecast fold' for update skip locked;
    if not found then return 0; end if;
    with gone as (
        delete from postdate.forecast_change where ctid = any (array(select ctid from postdate.forecast_change limit most)) returning *),
    change as (
        select t.exchange, t.minute, sum(t.n) as n from gone, unnest(gone.exchanges, gone.minutes, gone.n) as t (exchange, minute, n)
         group by 1, 2 having sum(t.n) <> 0),
    counted as (
        insert into postdate.forecast as f (grain, at, exchange, n)
        select g, to_timestamp(floor(c.minute * 60.0 / g) * g), c.exchange, sum(c.n)
          from change c, unnest('{60,3600,86400}'::int[]) g group by 1, 2, 3
        on conflict (grain, at, exchange) do update set n = f.n + excluded.n)
    select count(*) into folded from gone;
    if folded < most then
        update postdate.forecast_state set folded_at = now();
        delete from postdate.forecast where grain = 60 and at < now() - interval '1 hour';
        delete from postdate.forecast where grain = 3600 and at < now() - interval '2 hours';
        delete from postdate.forecast where grain = 86400 and at < now() - interval '2 days';
    end if;
    return folded;
end $$;

create or replace function postdate.forecast_correct(since timestamptz, most bigint) returns timestamptz
language plpgsql set plan_cache_mode = force_custom_plan set enable_seqscan = off as $$
declare
    begins timestamptz := date_trunc('minute', greatest(since, now())) + interval '1 minute';
    day_ends timestamptz := (date_trunc('day', begins at time zone 'UTC') + interval '1 day') at time zone 'UTC';
    ends timestamptz;
    first_id uuid;
    last_due timestamptz;
begin
    perform from postdate.gate where name = 'forecast count' for update skip locked;
    if not found then return since; end if;
    first_id := postdate.id_floor(begins);
    -- An id begins with its due time. All that is due in the minute at which this many are reached belongs to the next piece.
    select date_trunc('minute', x.due) into ends from postdate.message x where x.id >= first_id and x.id < postdate.id_floor(day_ends)
     order by x.id offset most limit 1;
    ends := coalesce(ends, day_ends);
    if ends <= begins then ends := begins + interval '1 minute'; end if;
    insert into postdate.forecast_change
    select array_agg(d.exchange), array_agg(d.minute), array_agg(d.n::int) from (
        select s.exchange, s.minute, sum(s.n) as n from (
            select x.exchange, floor(extract(epoch from x.due) / 60)::int as minute, count(*) as n from postdate.message x
             where x.id >= first_id and x.id < postdate.id_floor(ends) and x.settled_at is null group by 1, 2
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

revoke execute on all functions in schema postdate from public;
