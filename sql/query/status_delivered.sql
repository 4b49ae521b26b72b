-- One partition, [$1, $2) by due: how many are delivered among the rows with an id below $4, $3 at most.
select count(*) from (select from postdate.message where due >= $1::timestamptz and due < $2::timestamptz and id < $4::uuid and state = 'delivered' limit $3::bigint) s
