-- Version 18: what a token may do. `read` looks only; `operate` also changes.
alter table postdate.token add column role text not null default 'operate' check (role in ('read', 'operate'));
drop trigger token_changed on postdate.token;
create trigger token_changed after insert or delete or truncate or update of hash, exchanges, role, revoked_at on postdate.token
    for each statement execute function postdate.token_changed();

-- The command line has no gateway to log what it changed: PostgreSQL's log tells who did it, and from where.
create function postdate.audit(what text) returns void language plpgsql as $$
begin
    raise log 'postdate audit: by role % from %: %', session_user, coalesce(host(inet_client_addr()), 'this machine'), what;
end $$;
revoke all on function postdate.audit(text) from public;
