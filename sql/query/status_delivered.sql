-- One partition, [$1, $2): how many are delivered among the rows with an id below $4, $3 at most.
select count(*) from (select from postdate.message where id >= $1::uuid and id < $2::uuid and id < $4::uuid and state = 'delivered' limit $3::bigint) s
