-- Version 11: an operator ends a message that nobody can deliver, or whose delivery is in doubt for good. It is `failed` then, and may be retried.

-- Is somebody publishing it? An owner whose session is gone, and whose lease ran out long ago, is nobody: no gateway may be left to say so.
create function postdate.owner_lives(owner integer) returns boolean language plpgsql as $$
declare
    seen timestamptz := (select i.heartbeat_at from postdate.instance i where i.id = owner);
begin
    return seen is not null and (seen > clock_timestamp() - interval '30 s' or not pg_try_advisory_xact_lock(1886352244, owner));
end $$;

-- 'done' (also when asked again), 'busy', 'too_late' (delivered, cancelled, or with the broker), 'not_found'.
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
           set state = 'failed', settled_at = clock_timestamp(), owner = null,
               error = case m.state when 'claimed' then 'may have been delivered; ' else '' end || 'ended by an operator (' || left(who, 100) || ')'
                       || coalesce('; before: ' || left(m.error, 300), '')
         where x.due = m.due and x.id = m.id;
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

create function postdate.do_bulk(operation text, ids uuid[], shift interval, scope text[], who text) returns integer
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    one uuid;
    done integer := 0;
begin
    if operation <> 'fail' then
        return postdate.do_bulk(operation, ids, shift, scope);
    end if;
    for one in
        select x.id from postdate.message x
         where x.id = any (ids) and x.due >= postdate.id_due(ids[1]) and x.due <= postdate.id_due(ids[cardinality(ids)])
           and x.state = 'claimed' and x.owner is null
         order by x.id for update skip locked
    loop
        done := done + ((postdate.do_fail(one, scope, who)).result = 'done')::integer;
    end loop;
    return done;
end $$;

create or replace function postdate.roles_ensure() returns text[] language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    role text;
    f regprocedure;
    missing text[] := '{}';
begin
    foreach role in array '{postdate_producer,postdate_reader}'::text[] loop
        if not exists (select from pg_roles where rolname = role) then
            begin
                execute format('create role %I nologin', role);
            exception
                when duplicate_object or unique_violation then null; -- made by another database's migration just now
                when insufficient_privilege then
                    missing := missing || role;
                    continue;
            end;
        end if;
        execute format('grant usage on schema postdate to %I', role);
    end loop;
    if not 'postdate_producer' = any (missing) then
        for f in select p.oid::regprocedure from pg_proc p where p.pronamespace = 'postdate'::regnamespace
                    and p.proname in ('schedule', 'schedule_many', 'cancel', 'cancel_key', 'reschedule', 'retry', 'fail') loop
            execute format('grant execute on function %s to postdate_producer', f);
        end loop;
    end if;
    if not 'postdate_reader' = any (missing) then
        grant select on postdate.messages to postdate_reader;
        grant execute on function postdate.message(uuid), postdate.id_due(uuid), postdate.id_floor(timestamptz) to postdate_reader;
        for f in select p.oid::regprocedure from pg_proc p where p.pronamespace = 'postdate'::regnamespace and starts_with(p.proname, 'wire_') loop
            execute format('grant execute on function %s to postdate_reader', f);
        end loop;
    end if;
    return missing;
end $$;

revoke execute on all functions in schema postdate from public;
