-- $1 ids, $2 exchanges, $3 routing keys, $4 properties, $5 bodies, $6: after how many ms RabbitMQ has lost it. Returns how many were stored.
select postdate.history_store($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::bigint)
