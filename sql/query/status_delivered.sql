-- One partition, [$1, $2): how many are delivered among the rows with an id below $4, $3 at most. What is plain and behind the frontier is, but for what open claims and RabbitMQ have.
select greatest(0,
       (select count(*) from (select from postdate.message m
         where m.id >= $1::uuid and m.id < $2::uuid and m.id < $4::uuid
           and (m.state = 'delivered' or m.next_at is null and m.id <= (select f.to_id from postdate.frontier f where f.one = 1)
                                         and (m.hold = 'g' or postdate.handover_owner(m.id, m.born) is null))
         limit $3::bigint) s)
     - (select count(*) from (select from postdate.batch b, postdate.batch_open_rows(b, $1::uuid, least($2::uuid, $4::uuid), $3::bigint) p
         where not b.done and b.lane = 'g' limit $3::bigint) o))
