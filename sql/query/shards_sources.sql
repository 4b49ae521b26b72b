-- $1 place
select unnest(s.sources) from postdate.shards s where s.place = $1::text
