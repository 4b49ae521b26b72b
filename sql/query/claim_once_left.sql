-- What `postdated --once` still waits for: of what was accepted by $1, all that is due to be tried by $2, whoever has claimed it; and what the broker should have let
-- go long since by $1, which is to be rescued. $3: the number that matters.
select (select count(*) from (
            select from postdate.message
             where owner is null and settled_at is null and state <> 'handed'
               and next_at <= $2::timestamptz and due <= $2::timestamptz and created_at <= $1::timestamptz
             limit $3::bigint) w)
     + (select count(*) from (
            select from postdate.message
             where owner is not null and settled_at is null and due <= $2::timestamptz and created_at <= $1::timestamptz
             limit $3::bigint) c),
       (select count(*) from (
            select from postdate.message
             where owner is null and settled_at is null and state = 'handed'
               and next_at <= $1::timestamptz and due <= $1::timestamptz
             limit $3::bigint) h)
