-- How many instances lived at $1 and have not come back since: the database lost their sessions. $2: the lease in ms.
select count(*) from postdate.instance i
 where i.heartbeat_at > $1::timestamptz - $2::bigint * interval '1 ms' and not postdate.instance_lives(i, $2::bigint)
