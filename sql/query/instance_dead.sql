-- Instances whose session is gone, or whose lease ($2 ms) ran out.
select i.id from postdate.instance i where i.id <> $1::int and not postdate.instance_lives(i, $2::bigint)
