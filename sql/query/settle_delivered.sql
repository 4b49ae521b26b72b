-- $1, $2 who; $3, $4 least and greatest due (prunes partitions); $5 instance
update postdate.message m
   set state = 'delivered', settled_at = clock_timestamp(), owner = null, error = null, attempts = m.attempts + 1
  from unnest($1::timestamptz[], $2::uuid[]) as t (due, id)
 where m.due = t.due and m.id = t.id
   and m.due >= $3::timestamptz and m.due <= $4::timestamptz and m.owner = $5::int
