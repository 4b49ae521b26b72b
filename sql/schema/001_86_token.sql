-- Tokens: who may use which delivery exchanges where http.tokens is on.

create table postdate.token (
    id         bigint generated always as identity primary key,   -- never used twice: answers to Idempotency-Keys belong to it
    hash       bytea not null unique check (octet_length(hash) = 32),   -- SHA-256 of the token, which is nowhere
    name       text not null check (octet_length(name) between 1 and 64),
    role       text not null default 'operate' check (role in ('read', 'operate')),   -- `read` looks only; `operate` also changes
    exchanges  text[] not null check (array_position(exchanges, null) is null),
    created_at timestamptz not null default now(),
    last_used  timestamptz,             -- to about a minute
    revoked_at timestamptz
);
create unique index token_name on postdate.token (name) where revoked_at is null;

-- Gateways keep the tokens in memory, and read them again when this number is another one.
create table postdate.token_version (
    one     boolean primary key default true check (one),
    version bigint not null default 1
);
insert into postdate.token_version default values;

-- A trigger, so that a change by hand counts, too.
create function postdate.token_changed() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update postdate.token_version set version = version + 1;
    return null;
end $$;

create trigger token_changed after insert or delete or truncate or update of hash, exchanges, role, revoked_at on postdate.token
    for each statement execute function postdate.token_changed();

-- As sql/operate/ask.h says. In the argument are, of one that is created, the hash in base64, the exchanges and the role; of a list `all`: revoked
-- ones, too.
create function postdate.token_ask(operation text, name text, arg text, scope text[], via text, versions text[], fresh boolean,
                                   out answer text, out outcome text, out tag text, out said text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    o json := arg;
    up constant interval := '999 us'; -- to the next ms, as C reads times
    most constant integer := 10000;   -- that are not revoked: gateways keep them in memory
begin
    outcome := 'done';
    case operation
    when 'list' then
        select '[' || coalesce(string_agg(row_to_json(v)::text, ',' order by t.id), '') || ']' into answer
          from postdate.token t,
               lateral (select t.name, t.role, t.exchanges, postdate.recur_time_shown(t.created_at + up) as created_at, postdate.recur_time_shown(t.last_used + up) as last_used_at,
                               postdate.recur_time_shown(t.revoked_at + up) as revoked_at) v
         where t.revoked_at is null or (o ->> 'all')::boolean;
    when 'create' then
        insert into postdate.token (name, hash, exchanges, role)
        select token_ask.name, decode(o ->> 'hash', 'base64'), array(select json_array_elements_text(o -> 'exchanges')), o ->> 'role'
         where (select count(*) from postdate.token t where t.revoked_at is null) < most;
        outcome := case when found then 'made' else 'refused' end;
        said := format('there are %s tokens already, which is the limit: revoke some', most);
    when 'revoke' then
        update postdate.token t set revoked_at = now() where t.name = token_ask.name and t.revoked_at is null;
        outcome := case when found then 'done' else 'not_found' end;
        said := format('no token has the name "%s"', name);
    end case;
exception when unique_violation then
    outcome := 'refused';
    said := format('a token with the name "%s" exists already', name);
end $$;
