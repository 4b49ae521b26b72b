-- For work of many transactions: the row names the session that is at it. One that has no answer is had again by whoever asks for the same work
-- ($3), once that session is gone: its number belongs to nobody, to a role that is no member of the owner, or to a session that began later.
-- This session itself is at nothing else. No row: somebody is at it, or it is answered. When it was begun; null: now.
insert into postdate.idempotency as i (principal, key, body_hash, holder, holder_since)
select $1::text, $2::text, $3::bytea, pg_backend_pid(), coalesce(me.backend_start, clock_timestamp())
  from pg_stat_get_activity(pg_backend_pid()) me
    on conflict (principal, key) do update set holder = excluded.holder, holder_since = excluded.holder_since
 where i.status is null and i.body_hash = excluded.body_hash
   and (i.holder is null or i.holder = excluded.holder or i.holder_since < pg_postmaster_start_time()
        or not exists (select from pg_stat_get_activity(i.holder) s, pg_namespace n
                        where n.nspname = 'postdate' and pg_has_role(s.usesysid, n.nspowner, 'member')
                          and coalesce(s.backend_start, i.holder_since) <= i.holder_since))
returning case when xmax <> 0 then created_at end
