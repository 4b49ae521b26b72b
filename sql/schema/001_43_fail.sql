-- An operator ends a message that nobody can deliver, or whose delivery is in doubt for good. It is `failed` then, and may be retried.

-- 'done' (also when asked again), 'busy', 'too_late' (delivered, cancelled, or with the broker), 'not_found'. What was in doubt stays so.
create function postdate.do_fail(wanted uuid, scope text[], who text, out result text, out latest uuid)
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
           set state = 'failed', rate = null, next_at = m.next_at, settled_at = clock_timestamp(), owner = null, recur = null, late_at = null, doubted = nullif(m.state = 'claimed', false),
               error = case m.state when 'claimed' then 'may have been delivered; ' else '' end || 'ended by an operator (' || left(who, 100) || ')'
                       || coalesce('; before: ' || left(m.error, 300), '')
         where x.id = m.id;
        if m.recur is not null then perform postdate.recur_skip(m.recur, m.id); end if;
        perform postdate.commit_durably();
        result := 'done';
    end if;
end $$;

-- 'failed' (also when asked again), 'busy' (a gateway is publishing it: ask again), 'too_late', 'not_found'.
create function postdate.fail(id uuid) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    result text := (postdate.do_fail(fail.id, null, session_user)).result;
begin
    return case result when 'done' then 'failed' else result end;
end $$;
