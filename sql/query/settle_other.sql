-- As settle_delivered; $6 state, $7 next_at (null: as it is), $8 error (null: as it is), $9 attempts made
update postdate.message m
   set state = t.state::postdate.message_state, owner = null, next_at = coalesce(t.next_at, m.next_at),
       error = coalesce(t.error, m.error), attempts = m.attempts + t.tries,
       settled_at = case when t.state = 'failed' then clock_timestamp() end
  from unnest($1::timestamptz[], $2::uuid[], $6::text[], $7::timestamptz[], $8::text[], $9::int[])
       as t (due, id, state, next_at, error, tries)
 where m.due = t.due and m.id = t.id
   and m.due >= $3::timestamptz and m.due <= $4::timestamptz and m.owner = $5::int
