-- What the broker should hold now, and what it should have let go of by $1 ms ago; each counted up to $2.
select (select count(*) from (select from postdate.message where state = 'handed' and settled_at is null
            and due > clock_timestamp() + interval '2 s' limit $2::bigint) a),
       (select count(*) from (select from postdate.message where state = 'handed' and settled_at is null
            and due < clock_timestamp() - $1::bigint * interval '1 ms' limit $2::bigint) b)
