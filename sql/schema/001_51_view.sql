-- What readers see of messages.

create view postdate.messages as
select m.id, m.key, m.state::text as state, m.exchange, m.routing_key, m.due as due_at,
       case when m.state in ('scheduled', 'claimed', 'handed') then m.next_at end as next_at, m.created_at, m.settled_at, m.attempts, m.error, m.body,
       case when m.properties_json is not null then coalesce(nullif(m.properties_json -> 'headers', 'null'), '{}')
            else postdate.wire_properties(m.properties) -> 'headers' end as headers,
       case when m.properties_json is not null then '{"delivery_mode": 2}' || coalesce(nullif(m.properties_json -> 'properties', 'null'), '{}')
            else postdate.wire_properties(m.properties) -> 'properties' end as properties,
       m.deadline
  from postdate.message_now m;

-- A view for looking at. The owner's UPDATE or DELETE would go through to the tables: messages would be gone, in no state, and due times would not fit their ids.
create function postdate.view_refuse() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform postdate.refuse('postdate.' || tg_table_name || ' cannot be changed', 'The statement was ' || tg_op || '.', tg_argv[0], '0A000');
    return null;
end $$;

create trigger messages_refuse instead of insert or update or delete on postdate.messages for each row
    execute function postdate.view_refuse('Call postdate.schedule, postdate.cancel, postdate.reschedule, postdate.retry or postdate.fail.');

-- One message by any id that it ever had. The view knows the latest only.
create function postdate.message(id uuid) returns setof postdate.messages
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    latest uuid := postdate.moved_latest(message.id);
begin
    return query select m.* from postdate.messages m where m.id = latest;
end $$;
