-- $1 days ahead, $2 how many are made.
select postdate.partitions_make($1::int, $2::int)
