-- The messages that a key names, in each of the exchanges ($2; null: all), at most $3.
select id from postdate.key where key = $1::text and ($2::text[] is null or exchange = any ($2::text[])) order by id limit $3::int
