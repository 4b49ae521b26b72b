-- Version 22: PostgreSQL prepares no transaction that has notified somebody. Who prepares one says `set local postdate.notify = off`: gateways then find
-- what is due soon when they look.
create function postdate.wake() returns void language plpgsql as $$
begin
    if current_setting('postdate.notify', true) is distinct from 'off' then perform pg_notify('postdate_wake', ''); end if;
end $$;
revoke all on function postdate.wake() from public;

-- As before (002_3_schedule.sql, 019_2_recur.sql, 017_1_recur_history.sql), but for that.
create or replace function postdate.after_write(s postdate.settings, first_due timestamptz, now_at timestamptz) returns void language plpgsql as $$
begin
    perform postdate.commit_durably();
    if first_due < now_at + s.wake_ms * interval '1 millisecond' then
        perform postdate.wake();
    end if;
end $$;

create or replace function postdate.recur_step(r postdate.recur, pending timestamptz, now_at timestamptz, grace interval, left_out integer) returns text
language plpgsql as $$
declare
    s record;
    p record;
    made integer := 0;
    first_ integer;
    row_id uuid;
    due_at timestamptz;
    too_far boolean;
    closed boolean;
begin
    p := postdate.recur_pass(r, pending, now_at, grace);
    if p.count > 0 then r.passed := p.missed[cardinality(p.missed)]; end if;
    if p.count > 0 and r.missed <> 'none' and not (r.overlap = 'skip' and r.last is not null and postdate.recur_waits(r.last)) then
        first_ := case when r.missed = 'all' and r.overlap = 'allow' then 1 else cardinality(p.missed) end;
        made := cardinality(p.missed) - first_ + 1;
        for i in first_..cardinality(p.missed) loop
            r.last := postdate.recur_insert(r, p.missed[i], now_at, case when i = first_ then least(case when p.count > 100 then 100 else left_out + p.count - made end, 100) else 0 end, false);
        end loop;
        r.last_nominal := p.missed[cardinality(p.missed)];
        left_out := 0;
    else
        left_out := least(left_out + p.count, 100);
    end if;
    due_at := postdate.recur_at(r, p.next);
    select x.max_delay_ms, x.wake_ms into s from postdate.settings x;
    too_far := due_at > now_at + s.max_delay_ms * interval '1 millisecond';
    closed := not too_far and not postdate.recur_day_open(postdate.due_round(due_at, now_at));
    if p.next is not null and not too_far and not closed then row_id := postdate.recur_insert(r, p.next, now_at, left_out, true); end if;
    update postdate.recur x
       set nominal = p.next, skipped = left_out, message = row_id, last = r.last, last_nominal = r.last_nominal, passed = r.passed, earliest = r.earliest, error = null,
           look_at = case when p.next is null then null when too_far then due_at - s.max_delay_ms * interval '0.5 millisecond'
                          when closed then now_at + interval '5 s'
                          else least(due_at + r.grace, greatest(due_at, now_at) + interval '30 s') end
     where x.id = r.id;
    if made > 0 or due_at < now_at + s.wake_ms * interval '1 millisecond' then perform postdate.wake(); end if;
    return case when p.count > 0 then 'recur ' || r.name || ': ' || case when p.count > 100 then 'more than 100' else p.count::text end
        || ' missed since ' || pending || ', ' || made || ' of them made up for' end;
end $$;

create or replace function postdate.recur_run_once(name text, request text) returns uuid language plpgsql as $$
declare
    r postdate.recur;
    now_at timestamptz := date_trunc('milliseconds', clock_timestamp());
    row_id uuid;
begin
    select x.* into r from postdate.recur x where x.name = recur_run_once.name;
    if not found then return null; end if;
    if request is not null then
        select c.message into row_id from postdate.recur_change c
         where c.name = recur_run_once.name and c.what = 'run' and c.request = recur_run_once.request and c.at > now_at - interval '1 day';
        if found then return row_id; end if;
    end if;
    r.jitter := '0';
    row_id := postdate.recur_insert(r, now_at, clock_timestamp(), 0, false);
    perform postdate.recur_note(r.name, 'run', null, null, row_id, request);
    perform postdate.commit_durably();
    perform postdate.wake();
    return row_id;
end $$;
