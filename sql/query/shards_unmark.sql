-- $1 place, $2 sources that are to be moved with those that were: none counts as moved, whoever goes on with it, and whatever is wanted then.
update postdate.shards set moving = true, sources = (select array_agg(distinct x) from unnest(sources || $2::text[]) x) where place = $1::text
