-- Outcomes other than a delivery at the first attempt.

-- Parameters as settle_delivered.sql, but of rows without an owner only those of the relay, or those to be handed over (handed_over); of each id its state, its
-- next_at (null: as it is), its error (null: as it is), how many attempts were made, and 'h': to be held by the gateway, 'i': to be published alone next time, 'd':
-- of a failed one, it may have been delivered. Plain rows are those of its batches. Always synchronous: batches move on past what was settled here. Returns how many
-- rows. No nested loop: where the planner expects one row, it would compare each with each.
create function postdate.settle_other(ids uuid[], first_id uuid, end_id uuid, instance_id integer, states text[], nexts timestamptz[], errors text[], tries integer[], flags text[],
                                      relayed boolean, handed_over boolean) returns bigint
language plpgsql set plan_cache_mode = force_custom_plan set enable_nestloop = off as $$
declare
    changed bigint;
begin
    update postdate.message m
       set state = t.state::postdate.message_state, owner = null, rate = null, next_at = coalesce(t.next_at, case when m.state <> 'handed' and m.rate is null then m.next_at end, m.due),
           error = coalesce(t.error, m.error), attempts = m.attempts + t.tries,
           settled_at = case when t.state in ('failed', 'expired') then clock_timestamp() end,
           hold = case when t.flag = 'h' then 'g' else m.hold end,
           isolate = case when t.error is null then m.isolate else t.flag = 'i' end,
           doubted = coalesce(nullif(t.flag = 'd', false), m.doubted)
      from unnest(ids, states, nexts, errors, settle_other.tries, flags) as t (id, state, next_at, error, tries, flag)
     where m.id = any (ids) and m.id = t.id
       and m.id >= first_id and m.id < end_id and (not handed_over and m.owner is not distinct from instance_id and (m.owner is not null or m.state = 'claimed')
            or (relayed and m.state in ('handed', 'claimed') or handed_over and m.state = 'handed') and m.owner is null and m.settled_at is null
            or m.next_at is null and exists (select from (select x.owner, x.from_id from (select b.owner, b.from_id, b.done from postdate.batch b where b.to_id >= m.id order by b.to_id limit 1) x where not x.done) b where b.owner = instance_id and b.from_id < m.id))
       and (select set_config('synchronous_commit', 'on', true)) = 'on';
    get diagnostics changed = row_count;
    return changed;
end $$;
