-- The message that a key names: state, and whether its key memory is over. Locked, so that it can't be claimed meanwhile.
select state::text, owner is not null,
       coalesce(settled_at < clock_timestamp() - $2::bigint * interval '1 ms', false)
  from postdate.message where id = $1::uuid for update
