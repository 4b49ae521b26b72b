-- $1 place
select queues::int, most::int, by, done is not null, false, false, false from postdate.shards where place = $1::text
