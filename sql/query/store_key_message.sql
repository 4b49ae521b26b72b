-- The message that a key names: state, and whether its key memory is over. Locked, so that it can't be claimed meanwhile.
select state::text, owner is not null,
       coalesce(settled_at < clock_timestamp() - $3::bigint * interval '1 ms', false)
  from postdate.message where due = $1::timestamptz and id = $2::uuid for update
