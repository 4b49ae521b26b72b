-- Version 14: whether a message is to be published alone next time. The broker refused it, or closed the channel or the connection that it was in
-- flight on, perhaps over it. It was read from the beginning of `error`, which is for people. Means something only where `error` says why; null: no.
alter table postdate.message add column isolate boolean;
do $$
declare
    loose text;
begin
    -- Days whose detach was interrupted must still fit when they are attached again.
    for loose in
        select c.relname from pg_class c
         where c.relnamespace = 'postdate'::regnamespace and c.relkind = 'r' and c.relname ~ '^message_[0-9]{8}$'
           and not exists (select from pg_inherits i where i.inhrelid = c.oid)
    loop
        execute format('alter table postdate.%I add column if not exists isolate boolean', loose);
    end loop;
end $$;
