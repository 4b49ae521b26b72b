-- One partition, [$1, $2) by due: how many are delivered among the rows with an id below $4, looking at $3 of them at most; and at how many it looked.
select count(*) filter (where state = 'delivered'), count(*)
  from (select state from postdate.message where due >= $1::timestamptz and due < $2::timestamptz and id < $4::uuid limit $3::bigint) s
