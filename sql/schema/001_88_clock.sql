-- A clock that was ahead and was set back. What it left in the future is what none of ours could have made now: where that can be told from the time itself it is
-- judged when it is read (postdate.rate_next, postdate.lately); the rest is mended here.

-- For the janitors, when they begin and when they see that the clock went back. retry_most: none waits longer for its next attempt. said: what is worth a line in the log. busy: somebody has a schedule
-- locked; to be called again.
create function postdate.clock_back(retry_most interval, out said text, out busy boolean)
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set enable_seqscan = off as $$
declare
    now_at timestamptz := clock_timestamp();
    n integer := 0;
    schedules integer := 0;
begin
    -- What a janitor is to see to within seconds, and what it put off until then. Looking too early does no harm. Schedules that left something out by that clock
    -- go on as if it had been right (postdate.recur_run).
    update postdate.recur s set look_at = now_at
     where s.id = any (array(select x.id from postdate.recur x
                               where x.run_from > now_at and lower(x.runs) <= now_at
                                  or (x.look_at > now_at + interval '1 s'
                                      and (x.message is null or x.look_at > greatest(postdate.id_due(x.message), now_at) + greatest(x.grace, interval '31 s')))
                               for update skip locked));
    select count(*) filter (where x.look_at = now_at), coalesce(bool_or(x.look_at is distinct from now_at), false) into schedules, busy
      from postdate.recur x where x.run_from > now_at and lower(x.runs) <= now_at;
    update postdate.message m set next_at = greatest(m.due, now_at)
     where m.id = any (array(select x.id from postdate.message x
                              where x.state = 'scheduled' and x.owner is null and x.settled_at is null and x.next_at <> x.due and x.rate is null
                                and x.next_at > greatest(x.due, now_at) + retry_most
                              order by x.id for update skip locked))
       and m.rate is null;
    get diagnostics n = row_count;
    if n + schedules > 0 then
        said := 'the clock of the database was set back: ' || n || ' messages are tried again now, and ' || schedules || ' recurring schedules continue where they were';
    end if;
    -- Claims that were put back wait a minute at most.
    update postdate.batch b set again_at = least(b.again_at, now_at), back_since = least(b.back_since, now_at)
     where b.id = any (array(select x.id from postdate.batch x
                              where x.again_at is not null and (x.again_at > now_at + interval '61 s' or x.back_since > now_at + interval '1 s') for update skip locked));
    -- The lease of a gateway that stood still meanwhile runs out; one that lives writes a heartbeat of its own.
    update postdate.instance i set heartbeat_at = now_at
     where i.id = any (array(select x.id from postdate.instance x where x.heartbeat_at > now_at + interval '1 s' for update skip locked));
    -- An answer is kept for a day from now on. A time in the future cannot be told from a right one later, so it is not enough to judge it when it is read.
    update postdate.idempotency i set created_at = now_at
     where i.ctid = any (array(select x.ctid from postdate.idempotency x where x.created_at > now_at + interval '1 s' for update skip locked));
end $$;
