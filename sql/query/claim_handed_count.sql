-- Bounded twice: by the days ($1, $2) in which the broker can hold anything, and by the number that matters ($3).
select count(*) from (
    select from postdate.message
     where state = 'handed' and settled_at is null and due >= $1::timestamptz and due <= $2::timestamptz
     limit $3::bigint) h
