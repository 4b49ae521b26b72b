-- The message that a key names: state, and whether its key memory is over. Locked, so that it can't be claimed meanwhile.
select (s.m).state::text, (s.m).owner is not null,
       coalesce((s.m).settled_at < clock_timestamp() - $2::bigint * interval '1 ms', false)
  from (select postdate.message_stands(l.x) as m
          from (select x from postdate.message x where x.id = $1::uuid for update) l offset 0) s
