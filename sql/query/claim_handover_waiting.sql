-- In a transaction of pg_begin_by_index.
-- What `postdate feed` waits for: handing_claim.sql's candidates, and what a gateway has yet to bring there; of what was
-- accepted by $3 (later ones are no reason to wait longer). $1 horizon, $2 the least time ahead, $5 and $6 bounds of the ids between, $4 the number that matters.
select (select count(*) from (
            select from postdate.message
             where owner is null and settled_at is null and state = 'scheduled' and hold = 'b'
               and next_at <= $1::timestamptz and next_at >= $2::timestamptz
               and id < $6::uuid and id >= $5::uuid
               and created_at <= $3::timestamptz
             order by next_at limit $4::bigint) w)
     + (select count(*) from (
            select from postdate.handing h, unnest(h.ids) i (id), postdate.message m
             where m.id = i.id and m.id < $6::uuid and m.id >= $5::uuid and m.created_at <= $3::timestamptz
             limit $4::bigint) c)
