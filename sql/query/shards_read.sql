-- $1 place, $2 sources. Nobody else does anything there before this transaction ends.
select s.queues::int, s.most::int, s.by, s.done is not null, not s.moving and s.sources @> $2::text[] and coalesce(s.done = s.by, false),
       s.moving and s.sources @> $2::text[], not s.moving and s.done is distinct from s.by
  from postdate.shards s where s.place = $1::text for update
