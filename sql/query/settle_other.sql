-- As settle_delivered, but what nobody owns is only the relay's; $5 state, $6 next_at (null: as it is), $7 error (null: as it is), $8 attempts made, $9 'h': to be held by the gateway, 'i': to be published alone next time, 'p': not handed over,
-- it arrives anew, $10 as $5 there. Plain rows are those of its batches. Always synchronous: batches move on past what was settled here
update postdate.message m
   set state = t.state::postdate.message_state, owner = null,
       next_at = case when t.flags = 'p' and m.next_at is null and m.hold = 'b' then postdate.next_at_of(m.due, (select postdate.fence_for_store())) else coalesce(t.next_at, m.next_at, m.due) end,
       born = case when t.flags = 'p' then pg_current_xact_id() else m.born end,
       error = coalesce(t.error, m.error), attempts = m.attempts + t.tries + ($10::bool and m.next_at is null and m.hold = 'b')::int,
       settled_at = case when t.state in ('failed', 'expired') then clock_timestamp() end,
       hold = case when t.flags = 'h' then 'g' else m.hold end,
       isolate = case when t.error is null then m.isolate else t.flags = 'i' end
  from unnest($1::uuid[], $5::text[], $6::timestamptz[], $7::text[], $8::int[], $9::text[]) as t (id, state, next_at, error, tries, flags)
 where m.id = any ($1::uuid[]) and m.id = t.id
   and m.id >= $2::uuid and m.id < $3::uuid and (m.owner is not distinct from $4::int and (m.owner is not null or m.state = 'claimed')
        or $10::bool and m.state = 'claimed' and m.owner is null and m.settled_at is null
        or m.next_at is null and ($10::bool and m.hold = 'b'
                                  or exists (select from postdate.batch b where b.owner = $4::int and not b.done and b.from_id < m.id and b.to_id >= m.id)))
   and (select set_config('synchronous_commit', 'on', true)) = 'on'
