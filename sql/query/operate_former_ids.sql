-- $1: the id that a message has now. Those that it had before, or whose message it replaced, by commas; at most a hundred.
select string_agg(f.id::text, ',' order by f.id)
  from (select x.id from postdate.moved m join postdate.moved x on x.first_id = m.first_id where m.id = $1::uuid and x.id <> $1::uuid limit 100) f
