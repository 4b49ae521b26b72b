-- Rows that the broker held come into this gateway's hands, by id. $1 ids; $2, $3 their bounds (prune partitions);
-- $4 instance; $5 bytes, of which the first row may have any number; $6 whether their content is wanted. What somebody else has locked is left out.
-- If the gateway dies, they wait for their due time, and no longer for the rescue.
with candidate as materialized (
    select id, due, case when (select exists (select from postdate.rate where not removed)) then postdate.rate_of(exchange, routing_key) end as rate, octet_length(body) + octet_length(properties)
           + coalesce(pg_column_size(properties_json), 0) as size
      from postdate.message
     where id = any ($1::uuid[]) and id >= $2::uuid and id < $3::uuid
       and state = 'handed' and owner is null and settled_at is null
       and exists (select from postdate.instance where id = $4::int)
       for update skip locked),
fitting as materialized (
    select id, rate from (select *, sum(size) over (order by due, id rows unbounded preceding) - size as before from candidate) s
     where before < $5::bigint),
slower as ( -- it waits for a slot of its rate
    update postdate.message m
       set rate = f.rate, next_at = 'infinity', state = 'claimed'
      from fitting f
     where m.id = f.id and f.rate is not null and $6::bool
       and m.id = any (array(select id from fitting where rate is not null)) and m.id >= $2::uuid and m.id < $3::uuid)
update postdate.message m
   set owner = $4::int, state = 'claimed', next_at = m.due
 where m.id = any (array(select id from fitting where rate is null or not $6::bool)) and m.id >= $2::uuid and m.id < $3::uuid
returning m.due, m.id, m.due, true, m.attempts, m.hold, m.exchange, m.routing_key, m.key,
          case when $6::bool then m.properties else '' end, case when $6::bool then m.body else '' end, m.isolate and m.error is not null,
          case when $6::bool then m.properties_json::text end, clock_timestamp(), m.deadline
