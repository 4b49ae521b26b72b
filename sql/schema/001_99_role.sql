-- Who may do what, and who did.

-- The command line has no gateway to log what it changed: PostgreSQL's log tells who did it, and from where.
create function postdate.audit(what text) returns void language plpgsql as $$
begin
    raise log 'postdate audit: by role % from %: %', session_user, coalesce(host(inet_client_addr()), 'this machine'), what;
end $$;

-- Nobody but the owner calls what is not granted by name. Grants what the two roles may, makes them where this login can, and returns those that are missing.
-- `postdate migrate` calls it after the files of each version, in their transaction, and once more at its end: a step that makes a function, or drops and creates
-- one, grants and revokes nothing. A function that belongs to another role is left alone.
create function postdate.roles_ensure() returns text[] language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    role text;
    f regprocedure;
    exposed text := (select string_agg(p.oid::regprocedure::text, ', ') from pg_proc p where p.pronamespace = 'postdate'::regnamespace
                     and has_function_privilege('public', p.oid, 'execute') and pg_has_role(p.proowner, 'usage'));
    missing text[] := '{}';
begin
    if exposed is not null then execute 'revoke execute on routine ' || exposed || ' from public'; end if;
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
                    and p.proname in ('schedule', 'schedule_many', 'cancel', 'cancel_key', 'reschedule', 'retry', 'fail', 'recur_set',
                        'recur_apply', 'recur_remove', 'recur_pause', 'recur_resume', 'recur_run', 'recur_preview', 'recur_upcoming', 'recur_next')
                    and pg_has_role(p.proowner, 'usage') and not has_function_privilege('postdate_producer', p.oid, 'execute') loop
            execute format('grant execute on function %s to postdate_producer', f);
        end loop;
    end if;
    if not 'postdate_reader' = any (missing) then
        grant select on postdate.messages, postdate.recurring, postdate.recurring_changes, postdate.rates to postdate_reader;
        for f in select p.oid::regprocedure from pg_proc p where p.pronamespace = 'postdate'::regnamespace
                    and (starts_with(p.proname, 'wire_') or p.proname in ('message', 'id_due', 'id_floor', 'recur_outcome', 'settled_to', 'fence_at',
                        'batch_owner', 'rate_waiting', 'rate_next', 'rate_slot', 'recur_preview', 'recur_upcoming', 'recur_next'))
                    and pg_has_role(p.proowner, 'usage') and not has_function_privilege('postdate_reader', p.oid, 'execute') loop
            execute format('grant execute on function %s to postdate_reader', f);
        end loop;
    end if;
    return missing;
end $$;
