-- Another attempt of a message that failed, or the next one at once.

-- Tried again at once. Also 'not_failed', 'key_taken'; 'too_late' after its deadline. What was in doubt when it was ended is in doubt again, and
-- has had an attempt: with none, its gateway would seem to have died. What waits for another attempt has it at once, of those that it has left.
create function postdate.do_retry(wanted uuid, scope text[], out result text, out latest uuid)
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
    elsif m.state in ('scheduled', 'claimed') and m.owner is null and m.error is not null and m.rate is null then
        -- A gateway believes a refusal for a second (EXCHANGE_REFUSED_MS) without asking RabbitMQ again: after that whatever was repaired before is seen.
        update postdate.message x set next_at = greatest(x.due, postdate.due_round(now_at + interval '1.1 s', now_at))
         where x.id = m.id and x.next_at > now_at + interval '1.1 s';
        perform postdate.after_write(s, m.due, now_at);
        result := 'done';
    elsif m.state <> 'failed' then
        result := 'not_failed';
    elsif m.key is not null and not postdate.key_regain(m.exchange, m.key, m.id, m.id, s.key_memory_ms) then
        result := 'key_taken';
    else
        update postdate.message x
           set state = case when x.doubted then 'claimed' else 'scheduled' end::postdate.message_state, doubted = null, settled_at = null,
               rate = null, next_at = greatest(x.due, postdate.due_round(now_at, now_at)),
               attempts = coalesce(x.doubted::integer, 0), error = null
         where x.id = m.id;
        perform postdate.after_write(s, m.due, now_at);
        result := 'done';
    end if;
end $$;

-- A failed message, or one that waits for another attempt: 'retried', 'not_failed', 'not_found'.
create function postdate.retry(id uuid) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    result text := (postdate.do_retry(retry.id, null)).result;
begin
    if result = 'key_taken' then
        perform postdate.refuse('the key is taken', 'The failed message''s key now names another message.', 'Cancel that message first, or schedule a new one.', '23505');
    end if;
    return case result when 'done' then 'retried' else result end;
end $$;
