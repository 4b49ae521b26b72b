-- Bounded twice: by the ids [$1, $2) of the days in which RabbitMQ can hold messages, and by the largest relevant number ($3).
select count(*) from (
    select from postdate.message
     where state = 'handed' and settled_at is null and id >= $1::uuid and id < $2::uuid
     order by due
     limit $3::bigint) h
