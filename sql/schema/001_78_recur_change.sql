-- Who changed a schedule, when and how.
create table postdate.recur_change (
    id      bigint generated always as identity primary key,
    name    text not null,        -- of the schedule, which may be gone
    at      timestamptz not null default clock_timestamp(),
    who     text not null,        -- the role in the database, and what it acted for
    what    text not null check (what in ('set', 'pause', 'resume', 'run', 'remove')),
    old     jsonb,                -- the definition before; null: there was none, or it is the same
    new     jsonb,
    message uuid,                 -- run: what was made
    request text,                 -- run: which request, so that one that is repeated runs nothing again
    anchor  timestamptz           -- remove: from when on @every counts, should it be made again
);
create index recur_change_name on postdate.recur_change (name, id);
create index recur_change_removed on postdate.recur_change (at) where what = 'remove';

-- Who acts: the role, and whom it acts for, where a program says that (postdate.recur_ask).
create function postdate.recur_who() returns text language sql stable set search_path = pg_catalog, pg_temp as $$
    select session_user || coalesce(', ' || nullif(current_setting('postdate.via', true), ''), '')
$$;

-- What somebody has set, without what follows from it. A long body is told by its hash.
create function postdate.recur_definition(r postdate.recur) returns jsonb language sql stable set search_path = pg_catalog, pg_temp as $$
    select jsonb_strip_nulls(jsonb_build_object('cron', r.cron, 'dialect', r.dialect, 'zone', r.zone, 'exchange', r.exchange, 'routing_key', r.routing_key, 'missed', r.missed,
               'grace', postdate.recur_duration_shown(r.grace), 'jitter', postdate.recur_duration_shown(r.jitter), 'dst', r.dst, 'overlap', r.overlap,
               'from', postdate.recur_time_shown(r.from_at), 'until', postdate.recur_time_shown(r.until_at)))
        || jsonb_build_object('headers', r.content -> 'headers', 'properties', r.content -> 'properties')
        || case when octet_length(r.body) > 4000 then jsonb_build_object('body_bytes', octet_length(r.body), 'body_sha256', encode(sha256(r.body), 'hex'))
                when jsonb_typeof(postdate.wire_text(r.body)) = 'string' then jsonb_build_object('body', postdate.wire_text(r.body))
                else jsonb_build_object('body_base64', postdate.wire_text(r.body) -> '!bytes') end
$$;

-- The last twenty of each schedule are kept, and apart from these its last twenty runs.
create function postdate.recur_note(name text, what text, old jsonb, new jsonb, message uuid, request text, anchor timestamptz default null) returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into postdate.recur_change (name, who, what, old, new, message, request, anchor)
    values (recur_note.name, postdate.recur_who(), recur_note.what, recur_note.old, recur_note.new, recur_note.message, recur_note.request, recur_note.anchor);
    delete from postdate.recur_change c
     where c.name = recur_note.name and (c.what = 'run') = (recur_note.what = 'run')
       and c.id <= (select x.id from postdate.recur_change x where x.name = recur_note.name and (x.what = 'run') = (recur_note.what = 'run')
                     order by x.id desc offset 20 limit 1);
end $$;

-- Fires for what people change, not for what the passing of time does: that leaves changed_at alone.
create function postdate.recur_changed() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    case when tg_op = 'INSERT' then
        perform set_config('postdate.recur_made', new.name, true);
        perform postdate.recur_note(new.name, 'set', null, postdate.recur_definition(new), null, null);
    when tg_op = 'DELETE' then
        perform postdate.recur_note(old.name, 'remove', postdate.recur_definition(old), null, null, null, old.anchor);
    when new.paused <> old.paused then
        perform postdate.recur_note(new.name, case when new.paused then 'pause' else 'resume' end, null, null, null, null);
    else
        perform postdate.recur_note(new.name, 'set', postdate.recur_definition(old), postdate.recur_definition(new), null, null);
    end case;
    return null;
end $$;

create trigger recur_changed after insert or update of changed_at or delete on postdate.recur
    for each row execute function postdate.recur_changed();

create view postdate.recurring_changes as
select c.name, c.at, c.who, c.what, c.old, c.new, c.message as id from postdate.recur_change c;

create trigger recurring_changes_refuse instead of insert or update or delete on postdate.recurring_changes for each row
    execute function postdate.view_refuse('It records past changes. Call postdate.recur_set, or another function of docs/recurring.md.');
