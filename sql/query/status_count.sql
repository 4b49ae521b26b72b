-- One partition, [$1, $2) by due: how many rows in each of the states that an index finds, so the rest of the day is not read. At most: $3 handed, $4 claimed,
-- $5 cancelled, $6 superseded, $7 failed, $8 expired. And how many of those that are claimed are tried again.
select (select count(*) from (select from postdate.message where due >= $1::timestamptz and due < $2::timestamptz and state = 'handed' and settled_at is null limit $3::bigint) s),
       (select count(*) from (select from postdate.message where due >= $1::timestamptz and due < $2::timestamptz and owner is not null limit $4::bigint) s),
       (select count(*) from (select from postdate.message where due >= $1::timestamptz and due < $2::timestamptz and state = 'cancelled' and state <> 'delivered' and settled_at is not null limit $5::bigint) s),
       (select count(*) from (select from postdate.message where due >= $1::timestamptz and due < $2::timestamptz and state = 'superseded' and state <> 'delivered' and settled_at is not null limit $6::bigint) s),
       (select count(*) from (select from postdate.message where due >= $1::timestamptz and due < $2::timestamptz and state = 'failed' and state <> 'delivered' and settled_at is not null limit $7::bigint) s),
       (select count(*) from (select from postdate.message where due >= $1::timestamptz and due < $2::timestamptz and state = 'expired' and state <> 'delivered' and settled_at is not null limit $8::bigint) s),
       (select count(*) from (select error from postdate.message where due >= $1::timestamptz and due < $2::timestamptz and owner is not null limit $4::bigint) s where error is not null)
