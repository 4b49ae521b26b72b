-- One partition: the next attempt; and how many should have been tried a second ago ($3 at most), and since when.
select (select min(next_at) from postdate.message
         where owner is null and settled_at is null and due >= $1::timestamptz and due < $2::timestamptz),
       (select count(*) from (select from postdate.message
         where owner is null and settled_at is null and due >= $1::timestamptz and due < $2::timestamptz
           and next_at < clock_timestamp() - interval '1 s' limit $3::bigint) o)
