-- Version 21: what was in doubt when it was ended by hand stays so. It may have been delivered, and was cancelled or rescheduled all the same, with
-- a yes; a copy of it may still wait in a queue without a leader. Now it is too late for that, and a retry puts it back in doubt.
alter table postdate.message add column doubted boolean;    -- of a failed one: it was in doubt; null: it was not

-- As before (016_3_recur_view.sql), but for the doubt.
create or replace function postdate.do_cancel(wanted uuid, scope text[], out result text, out latest uuid)
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    m record;
begin
    -- What is settled or under way is answered without a lock.
    latest := postdate.moved_latest(wanted);
    select x.state, x.owner, x.deadline, x.doubted into m from postdate.message x
     where x.due = postdate.id_due(latest) and x.id = latest and (scope is null or x.exchange = any (scope));
    if not found then
        result := 'not_found';
        return;
    end if;
    if m.state in ('scheduled', 'failed', 'superseded') and m.owner is null then
        m := postdate.message_lock(wanted, scope, false);
        latest := coalesce(m.id, latest);
    end if;
    if m.state = 'cancelled' then
        result := 'done';
    elsif m.state = 'superseded' then
        result := 'not_found'; -- what it became was delivered or cancelled, and removed, long ago: who knows which
    elsif m.state = 'failed' and (m.doubted or m.deadline < clock_timestamp()) then
        result := 'too_late';
    elsif m.state in ('scheduled', 'failed') and m.owner is null then
        update postdate.message x
           set state = 'cancelled', settled_at = clock_timestamp(), body = '', properties = '', properties_json = null, error = null
         where x.due = m.due and x.id = m.id;
        if m.recur is not null then perform postdate.recur_skip(m.recur, m.id); end if;
        perform postdate.commit_durably();
        result := 'done';
    else
        result := case when m.state is null then 'not_found' else 'too_late' end;
    end if;
end $$;

create or replace function postdate.do_reschedule(wanted uuid, at timestamptz, shift interval, scope text[], out result text, out latest uuid)
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    s postdate.settings;
    m postdate.message;
    now_at timestamptz := clock_timestamp();
    new_due timestamptz;
    old_id uuid;
begin
    select * into strict s from postdate.settings;
    m := postdate.message_lock(wanted, scope, true);
    if m.id is null then
        result := 'not_found';
        return;
    end if;
    old_id := m.id;
    latest := m.id;
    if m.state not in ('scheduled', 'failed') or m.owner is not null or m.doubted then
        result := 'too_late';
        return;
    end if;
    new_due := coalesce(at, m.due + shift);
    if new_due > now_at + s.max_delay_ms * interval '1 millisecond' then
        result := 'too_far';
        return;
    end if;
    m.due := postdate.due_round(new_due, now_at);
    if m.due > m.deadline then
        result := 'past_deadline';
        return;
    end if;
    m.id := postdate.id_make(m.due);
    if m.key is not null and not postdate.key_regain(m.exchange, m.key, old_id, m.id, s.key_memory_ms) then
        result := 'key_taken';
        return;
    end if;
    insert into postdate.message (due, next_at, created_at, id, hold, exchange, routing_key, key, properties, properties_json, body, deadline)
    values (m.due, m.due, now_at, m.id, m.hold, m.exchange, m.routing_key, m.key, m.properties, m.properties_json, m.body, m.deadline);
    perform postdate.message_supersede(old_id, m.id);
    if m.recur is not null then perform postdate.recur_skip(m.recur, old_id); end if;
    perform postdate.after_write(s, m.due, now_at);
    latest := m.id;
    result := 'done';
end $$;

create or replace function postdate.do_fail(wanted uuid, scope text[], who text, out result text, out latest uuid)
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    m postdate.message;
begin
    m := postdate.message_lock(wanted, scope, false);
    latest := m.id;
    if m.id is null or m.state = 'superseded' then
        result := 'not_found';
    elsif m.state = 'failed' then
        result := 'done';
    elsif m.state not in ('scheduled', 'claimed') then
        result := 'too_late';
    elsif m.owner is not null and postdate.owner_lives(m.owner) then
        result := 'busy';
    else
        update postdate.message x
           set state = 'failed', settled_at = clock_timestamp(), owner = null, recur = null, late_at = null, doubted = nullif(m.state = 'claimed', false),
               error = case m.state when 'claimed' then 'may have been delivered; ' else '' end || 'ended by an operator (' || left(who, 100) || ')'
                       || coalesce('; before: ' || left(m.error, 300), '')
         where x.due = m.due and x.id = m.id;
        if m.recur is not null then perform postdate.recur_skip(m.recur, m.id); end if;
        perform postdate.commit_durably();
        result := 'done';
    end if;
end $$;

-- As before (015_deadline.sql), but for the doubt.
create or replace function postdate.do_retry(wanted uuid, scope text[], out result text, out latest uuid)
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    s postdate.settings;
    m postdate.message;
    now_at timestamptz := clock_timestamp();
begin
    select * into strict s from postdate.settings;
    m := postdate.message_lock(wanted, scope, true);
    latest := m.id;
    if m.id is null then
        result := 'not_found';
    elsif m.state = 'expired' or (m.state = 'failed' and m.deadline < now_at) then
        result := 'too_late';
    elsif m.state <> 'failed' then
        result := 'not_failed';
    elsif m.key is not null and not postdate.key_regain(m.exchange, m.key, m.id, m.id, s.key_memory_ms) then
        result := 'key_taken';
    else
        update postdate.message x
           set state = case when x.doubted then 'claimed' else 'scheduled' end::postdate.message_state, doubted = null, settled_at = null,
               next_at = greatest(x.due, postdate.due_round(now_at, now_at)), attempts = 0, error = null
         where x.due = m.due and x.id = m.id;
        perform postdate.after_write(s, m.due, now_at);
        result := 'done';
    end if;
end $$;
