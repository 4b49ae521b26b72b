-- Version 8: what is known of a day without reading it.

-- What keeps a settled day, beside what is delivered in time: by state, the last ones. What was delivered within an hour of its due time is in no
-- index: such rows are all older than their retention when the day's end is, and an hour.
create index message_kept on postdate.message (state, settled_at)
    where settled_at is not null and (state <> 'delivered' or settled_at - due > interval '1 hour');

-- How far ahead gateways have claimed what the broker is to wait with: nothing that a dead one owned is due later.
alter table postdate.meta add column claimed_until timestamptz;

-- One message by any id that it ever had. It reads one partition, which the id tells: the view alone, asked by id, is planned over all of them, with some thousand
-- locks where they reach two years ahead. A condition on the view that says the same: where id = X and due_at = postdate.id_due(X).
create function postdate.message(id uuid) returns setof postdate.messages
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    latest uuid := postdate.moved_latest(message.id);
begin
    return query select m.* from postdate.messages m where m.id = latest and m.due_at = postdate.id_due(latest);
end $$;
revoke execute on function postdate.message(uuid) from public;

-- Grants what the two roles may, makes them where this login can, and returns those that are missing. `postdate migrate` calls it.
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
                    and p.proname in ('schedule', 'schedule_many', 'cancel', 'cancel_key', 'reschedule', 'retry') loop
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

