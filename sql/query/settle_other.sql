-- As settle_delivered, but of what nobody owns only what is the relay's, or was to be handed over ($11); $5 state, $6 next_at (null: as it is), $7 error (null: as it is), $8 attempts made, $9 'h': to be held by the gateway, 'i': to be published alone next time, $10 as $5 there. Plain rows are those of its batches. Always synchronous: batches move on past what was settled here
update postdate.message m
   set state = t.state::postdate.message_state, owner = null, rate = null, next_at = coalesce(t.next_at, case when m.state <> 'handed' and m.rate is null then m.next_at end, m.due),
       error = coalesce(t.error, m.error), attempts = m.attempts + t.tries,
       settled_at = case when t.state in ('failed', 'expired') then clock_timestamp() end,
       hold = case when t.flags = 'h' then 'g' else m.hold end,
       isolate = case when t.error is null then m.isolate else t.flags = 'i' end
  from unnest($1::uuid[], $5::text[], $6::timestamptz[], $7::text[], $8::int[], $9::text[]) as t (id, state, next_at, error, tries, flags)
 where m.id = t.id
   and m.id >= $2::uuid and m.id < $3::uuid and (not $11::bool and m.owner is not distinct from $4::int and (m.owner is not null or m.state = 'claimed')
        or ($10::bool and m.state in ('handed', 'claimed') or $11::bool and m.state = 'handed') and m.owner is null and m.settled_at is null
        or m.next_at is null and exists (select from postdate.batch b where b.owner = $4::int and not b.done and b.from_id < m.id and b.to_id >= m.id))
   and (select set_config('synchronous_commit', 'on', true)) = 'on'
