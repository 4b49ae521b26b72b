-- $1 place: all its sources are moved.
update postdate.shards set moving = false, done = by where place = $1::text
