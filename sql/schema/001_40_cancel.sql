-- Cancelling, by id or key.

-- 'done', 'too_late', 'not_found'; latest is the id that the message has now. The key's row stays: it is free, as its message
-- is cancelled, and whoever cancels by key again gets the same answer. A failed message that may have been delivered (it was in doubt, or
-- its deadline has passed) must not look like a cancelled one, which never is: 'too_late'. A schedule goes on whose occurrence is cancelled.
create function postdate.do_cancel(wanted uuid, scope text[], out result text, out latest uuid)
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    m postdate.message;
begin
    -- What is settled or under way is answered without a lock.
    latest := postdate.moved_latest(wanted);
    select * into m from postdate.message x
     where x.id = latest and (scope is null or x.exchange = any (scope));
    if not found then
        result := 'not_found';
        return;
    end if;
    m := postdate.message_stands(m);
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
           set state = 'cancelled', rate = null, next_at = m.next_at, settled_at = clock_timestamp(), body = '', properties = '', properties_json = null, error = null
         where x.id = m.id;
        if m.recur is not null then perform postdate.recur_skip(m.recur, m.id); end if;
        perform postdate.commit_durably();
        result := 'done';
    else
        result := case when m.state is null then 'not_found' else 'too_late' end;
    end if;
end $$;

create function postdate.cancel(id uuid) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    result text := (postdate.do_cancel(cancel.id, null)).result;
begin
    return case result when 'done' then 'cancelled' else result end;
end $$;

create function postdate.cancel_key(key text, exchange text default null) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    place text := coalesce(cancel_key.exchange, (select s.exchange from postdate.settings s));
    holder uuid := (select k.id from postdate.key k where k.exchange = place and k.key = cancel_key.key);
begin
    return case when holder is null then 'not_found' else postdate.cancel(holder) end;
end $$;
