-- What a release after the first might do (tests/live/test_upgrade.py).
alter table postdate.message add column next_step integer;
create index message_next_step on only postdate.message (next_step);

-- A signature that grows.
drop function postdate.cancel(uuid);
create function postdate.cancel(id uuid, next_step integer default null) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    result text := (postdate.do_cancel(cancel.id, null)).result;
begin
    return case result when 'done' then 'cancelled' else result end;
end $$;
