-- Claims messages to hand over to RabbitMQ: parameters as claim.sql, but $8 is after how many ms it is lost there, and $2, and mostly that of $3, is the least time
-- ahead. Of both: the next attempt of a message that is due already may be in the future, too, but there is nothing to delay. Rates as in batch_claim.sql.
with candidate as materialized (
    select id, next_at, exchange, case when (select exists (select from postdate.rate where not removed and routing_key <> '*')) then routing_key else '' end as key,
           octet_length(body) + octet_length(properties) + coalesce(pg_column_size(properties_json), 0) as size
      from postdate.message
     where owner is null and settled_at is null and state = 'scheduled' and hold = 'b'
       and next_at <= $1::timestamptz and next_at >= $2::timestamptz
       and id < $7::uuid and id >= $3::uuid
       and exists (select from postdate.instance where id = $6::int)
     order by next_at
     limit $4::int
       for update skip locked),
rated as materialized (
    select p.exchange, p.key from (select distinct c.exchange, c.key from candidate c where (select exists (select from postdate.rate where not removed)) offset 0) p
     where postdate.rate_of(p.exchange, p.key) is not null),
fitting as materialized (
    select id, (s.exchange, s.key) in (select r.exchange, r.key from rated r) as slower
      from (select *, sum(size) over (order by next_at rows unbounded preceding) - size as before from candidate) s
     where before < $5::bigint),
noted as materialized (
    insert into postdate.handing (owner, ids)
    select $6::int, f.ids from (select array_agg(id) as ids from fitting where not slower) f where f.ids is not null
    returning id),
held as ( -- the gateway holds messages with a rate, so that they can be cancelled
    update postdate.message m set hold = 'g' where m.id = any (array(select id from fitting where slower)) and m.id < $7::uuid and m.id >= $3::uuid)
update postdate.message m
   set state = 'handed', next_at = m.due + $8::bigint * interval '1 ms'
 where m.id = any (array(select id from fitting where not slower))
   and m.id < $7::uuid and m.id >= $3::uuid
returning m.due, m.id, m.due, false,
          m.attempts, m.hold, m.exchange, m.routing_key, m.key, m.properties, m.body, m.isolate and m.error is not null, m.properties_json::text,
          clock_timestamp(), m.deadline, false, false, (select id from noted)
