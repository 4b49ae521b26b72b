-- Version 5: what SQL stored as JSON is not compressed, so that claims see how large it is without unpacking it: 3,000 messages with 120 KB of
-- headers that compress well took 136 MB instead of 24. Concerns what is stored from now on; claims unpack older ones to measure them.
alter table postdate.message alter column properties_json set storage external;
do $$
declare
    loose text;
begin
    -- Days whose detach was interrupted may be attached again.
    for loose in
        select c.relname from pg_class c
         where c.relnamespace = 'postdate'::regnamespace and c.relkind = 'r' and c.relname ~ '^message_[0-9]{8}$'
           and not exists (select from pg_inherits i where i.inhrelid = c.oid)
    loop
        execute format('alter table postdate.%I alter column properties_json set storage external', loose);
    end loop;
end $$;
