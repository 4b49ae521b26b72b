-- Messages: their states, ids, and earlier ids.

-- The order of the labels is the order of a message's life; sql/ relies on the names only.
create type postdate.message_state as enum
    ('scheduled', 'claimed', 'handed', 'delivered', 'cancelled', 'superseded', 'failed', 'expired');

-- One row per message. The id's first 48 bits are `due` in milliseconds, so ids sort like due times, and a range of ids is a range of due times: a day, or a month
-- that is far ahead (core/base/partition_span.h). `due` never changes; a retry moves `next_at`, which claims use and which is never before `due`.
--
-- A row is WAITING while it has no owner and is not settled. With a `next_at` it is in the index below, so that all waiting rows (scheduled, handed over and not
-- released in time, in doubt after a lost connection) are found by the same claim. Batches are found by `id = any (…)`, one index scan of the primary key regardless
-- of statistics. Columns are ordered by alignment, to lose no padding.
--
-- Messages from SQL keep headers and properties as JSON, {"headers":…,"properties":…}, and are encoded when they are
-- published; `properties` is empty then. The JSON is not compressed, so that claims see how large it is without unpacking it.
create table postdate.message (
    due             timestamptz not null,
    next_at         timestamptz,                -- null: plain (001_14_batch.sql)
    created_at      timestamptz not null default now(),
    settled_at      timestamptz,
    deadline        timestamptz,                -- not published after this: it becomes `expired`
    late_at         timestamptz,                -- not claimed after this: the occurrence is missed (postdate.recur_look)
    born            xid8 not null default pg_current_xact_id(), -- the transaction that stored it
    recur           bigint,                     -- the schedule whose next occurrence this row creates when it is claimed; null from the claim on
    id              uuid not null,
    owner           integer,
    rate            integer,                    -- it waits for a slot of this rate (001_62_rate.sql); its next_at is postdate.rate_until(deadline) then
    attempts        integer not null default 0,
    state           postdate.message_state not null default 'scheduled',
    hold            "char" not null,            -- 'g': the gateway holds it; 'b': RabbitMQ may
    isolate         boolean,                    -- publish it alone at the next attempt: RabbitMQ refused it, or closed the channel while it was in flight
    doubted         boolean,                    -- of a failed message: it may have been delivered (in doubt); null: it was not
    exchange        text not null,
    routing_key     text not null,
    key             text,
    error           text,
    properties      bytea not null,             -- AMQP basic properties as on the wire: flags, then values
    body            bytea not null,
    properties_json jsonb,
    primary key (id),
    check (next_at is not null or state = 'scheduled' and owner is null and settled_at is null and error is null and attempts = 0 and hold = 'g' and recur is null and rate is null)
) partition by range (id);
alter table postdate.message alter column properties_json set storage external;

create index message_waiting on postdate.message (next_at) where owner is null and settled_at is null and next_at is not null;
-- Messages that may be handed over, and handed-over messages. A gateway without a transport stores hold = 'g' only, and the first index stays empty.
create index message_handover on postdate.message (next_at)
    where owner is null and settled_at is null and state = 'scheduled' and hold = 'b';
create index message_handed on postdate.message (due) where state = 'handed' and settled_at is null;
-- Messages that wait for a slot, in order of due times.
create index message_rate on postdate.message (rate, id) where rate is not null and settled_at is null;
create index message_owned on postdate.message (owner) where owner is not null;
-- Messages that wait for another attempt. All other waiting messages are due at `next_at`, whose index thus gives the start of a list of scheduled messages; these
-- few are before that (sql/operate/lookup.c).
create index message_postponed on postdate.message (id)
    where state = 'scheduled' and owner is null and settled_at is null and next_at <> due;
-- Rejected messages and messages in doubt, which are tried again. Such rows have a next_at.
create index message_retrying on postdate.message (id) where error is not null and settled_at is null;
-- The rows that decide when a settled day can be dropped: by state, the last settled ones. Messages delivered within an hour of their due time are in no index: all
-- of them are beyond their retention an hour after the day's end is.
create index message_kept on postdate.message (state, settled_at)
    where settled_at is not null and (state <> 'delivered' or settled_at - due > interval '1 hour');

-- As core/message/message_id.c makes them: UUID version 8, the first 48 bits are the due time in milliseconds. due has no finer fraction.
-- cell: settings.cell, which becomes byte 7; null: that byte is random, too.
create function postdate.id_make(due timestamptz, cell smallint default null) returns uuid language sql volatile as $$
    -- one expression that names each argument once, so that it is inlined
    select (overlay(lpad(to_hex((extract(epoch from due) * 1000)::bigint), 12, '0') placing '-' from 9 for 0)
            || '-8' || overlay(substr(gen_random_uuid()::text, 16) placing coalesce(lpad(to_hex(cell::integer), 2, '0'), '') from 2))::uuid
$$;

-- The due time in an id. Seconds and milliseconds apart: a product with a double would lose digits.
create function postdate.id_due(id uuid) returns timestamptz language sql immutable set search_path = pg_catalog, pg_temp as $$
    select timestamptz '1970-01-01 00:00:00+00' + (ms / 1000) * interval '1 second' + (ms % 1000) * interval '1 millisecond'
      from (select ('x' || substr(t, 1, 8) || substr(t, 10, 4))::bit(48)::bigint as ms from cast(id as text) t) i
$$;

-- The least and the greatest id with this due time, in whole milliseconds.
create function postdate.id_floor(due timestamptz) returns uuid language sql immutable set search_path = pg_catalog, pg_temp as $$
    select (lpad(to_hex(floor(extract(epoch from due) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
$$;
create function postdate.id_ceiling(at timestamptz) returns uuid language sql immutable set search_path = pg_catalog, pg_temp as $$
    select (lpad(to_hex(floor(extract(epoch from at) * 1000)::bigint), 12, '0') || 'ffffffffffffffffffff')::uuid
$$;
create function postdate.id_ms(id uuid) returns bigint language sql immutable set search_path = pg_catalog, pg_temp as $$
    select ('x' || substr(t, 1, 8) || substr(t, 10, 4))::bit(48)::bigint from cast(id as text) t
$$;

-- Whole milliseconds, rounded up: never early. In the past is now.
create function postdate.due_round(at timestamptz, now_at timestamptz) returns timestamptz language plpgsql stable as $$
declare
    t timestamptz := case when at > now_at then at else now_at end;
    r timestamptz := date_trunc('milliseconds', t);
begin
    return case when r < t then r + interval '1 millisecond' else r end;
end $$;

-- Earlier ids of messages that were rescheduled or replaced. All ids of one message point to its first one, whose row has the latest: a move writes two rows,
-- however many ids there were. Rows live as long as the latest message's row; the janitor removes them.
create table postdate.moved (
    id        uuid primary key,
    first_id  uuid not null,
    latest_id uuid                          -- in the row of the first id only
);
create index moved_first on postdate.moved (first_id);
create index moved_latest on postdate.moved (latest_id) where latest_id is not null;

create function postdate.moved_latest(id uuid) returns uuid language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce((select f.latest_id from postdate.moved m join postdate.moved f on f.id = m.first_id where m.id = moved_latest.id), moved_latest.id)
$$;

-- old_ids[n] becomes new_ids[n].
create function postdate.moved_note_all(old_ids uuid[], new_ids uuid[]) returns void language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = on as $$
declare
    firsts uuid[] := array(select m.first_id from unnest(old_ids) with ordinality t (id, n) left join postdate.moved m on m.id = t.id order by t.n);
begin
    insert into postdate.moved (id, first_id, latest_id) select t.old_id, t.old_id, t.new_id from unnest(old_ids, new_ids, firsts) t (old_id, new_id, first) where t.first is null;
    update postdate.moved m set latest_id = t.new_id from unnest(new_ids, firsts) t (new_id, first) where m.id = t.first;
    insert into postdate.moved (id, first_id) select t.new_id, coalesce(t.first, t.old_id) from unnest(old_ids, new_ids, firsts) t (old_id, new_id, first);
end $$;

create function postdate.moved_note(old_id uuid, new_id uuid) returns void language plpgsql as $$
declare
    first uuid := (select m.first_id from postdate.moved m where m.id = old_id);
begin
    if first is null then
        insert into postdate.moved (id, first_id, latest_id) values (old_id, old_id, new_id);
    else
        update postdate.moved m set latest_id = new_id where m.id = first;
    end if;
    insert into postdate.moved (id, first_id) values (new_id, coalesce(first, old_id));
end $$;
