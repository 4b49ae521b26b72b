-- $1 place, $2 queues, $3 by. Will there be more queues than ever?
update postdate.shards s set queues = $2::int, most = greatest(s.most, $2::int), by = $3::text
  from (select most from postdate.shards where place = $1::text for update) before
 where s.place = $1::text and (s.queues <> $2::int or s.by <> $3::text)
returning $2::int > before.most
