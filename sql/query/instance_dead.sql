-- Instances whose session has ended, or whose lease ($2 ms) has expired.
select i.id from postdate.instance i where i.id <> $1::int and not postdate.instance_lives(i, $2::bigint)
