-- What consumers refused. Their queues dead-letter to postdate.retry; it goes back to the very queue after a wait, and is
-- kept as a dead letter when no attempt is left.

-- How often and after which waits, by the name of the queue ('*' matches any run of characters). The longest pattern that matches
-- counts; without one the built-in default (core/message/retry_policy.c), which retry_policy_set() has as its defaults, too.
create table postdate.retry_policy (
    pattern    text primary key check (octet_length(pattern) between 1 and 255),
    attempts   integer not null check (attempts between 1 and 1000),             -- deliveries in all
    first      interval not null check (first between '0' and '365 days'),
    max        interval not null check (max between first and '365 days'),
    factor     double precision not null check (factor between 1 and 100),
    jitter     integer not null check (jitter between 0 and 100),                -- percent
    reasons    text[] not null check (reasons <@ '{rejected,delivery_limit,expired,maxlen}' and array_position(reasons, null) is null),
    keep_dead  interval not null check (keep_dead between '0' and '3650 days'),
    changed_at timestamptz not null default clock_timestamp(),
    changed_by text not null default session_user
);

-- The policy of a queue, as core/message/retry_policy.c finds it; null: the built-in default.
create function postdate.retry_policy_of(queue text) returns postdate.retry_policy language sql stable set search_path = pg_catalog, pg_temp as $$
    select p from postdate.retry_policy p
     where retry_policy_of.queue like replace(replace(replace(replace(p.pattern, E'\\', E'\\\\'), '%', E'\\%'), '_', E'\\_'), '*', '%')
     order by octet_length(p.pattern) desc, p.pattern collate "C" limit 1
$$;

create function postdate.retry_policy_set(pattern text, attempts integer default 10, first interval default '1 s', factor double precision default 2,
    max interval default '1 h', jitter integer default 10, reasons text[] default '{rejected,delivery_limit}', keep_dead interval default '30 d')
returns void language sql security definer set search_path = pg_catalog, pg_temp as $$
    insert into postdate.retry_policy (pattern, attempts, first, factor, max, jitter, reasons, keep_dead, changed_by)
    values (retry_policy_set.pattern, retry_policy_set.attempts, retry_policy_set.first, retry_policy_set.factor, retry_policy_set.max,
            retry_policy_set.jitter, retry_policy_set.reasons, retry_policy_set.keep_dead, session_user)
    on conflict on constraint retry_policy_pkey do update
       set attempts = excluded.attempts, first = excluded.first, factor = excluded.factor, max = excluded.max, jitter = excluded.jitter,
           reasons = excluded.reasons, keep_dead = excluded.keep_dead, changed_at = clock_timestamp(), changed_by = excluded.changed_by
$$;

create function postdate.retry_policy_remove(pattern text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    delete from postdate.retry_policy p where p.pattern = retry_policy_remove.pattern;
    return found;
end $$;
