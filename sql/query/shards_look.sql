-- $1 place
select queues::int, most::int, by, done is not null from postdate.shards where place = $1::text
