-- Claims handed-over rows by id. $1 ids; $2, $3 their bounds (prune partitions); $4 instance; $5 bytes, of which the first row may have any number; $6 whether their
-- content is wanted. Locked rows are left out. Messages with a rate are not claimed: they wait for a slot, in doubt. (`is not distinct from`: else, in a day without
-- statistics, the index of all handed-over rows is read.) If the gateway dies, they wait for their due time, and no longer for the rescue.
with candidate as materialized (
    select id, due, octet_length(body) + octet_length(properties)
           + coalesce(pg_column_size(properties_json), 0) as size
      from postdate.message
     where id = any ($1::uuid[]) and id >= $2::uuid and id < $3::uuid
       and state = 'handed' and owner is null and settled_at is not distinct from null::timestamptz
       and exists (select from postdate.instance where id = $4::int)
       for update skip locked),
fitting as materialized (
    select id from (select *, sum(size) over (order by due, id rows unbounded preceding) - size as before from candidate) s
     where before < $5::bigint)
update postdate.message m
   set state = 'claimed', (owner, rate, next_at) = (
           select case when x.rate is null then $4::int end, x.rate, case when x.rate is null then m.due else 'infinity' end
             from (select case when $6::bool and (select exists (select from postdate.rate where not removed)) then postdate.rate_of(m.exchange, m.routing_key) end as rate offset 0) x)
 where m.id = any (array(select id from fitting)) and m.id >= $2::uuid and m.id < $3::uuid
returning m.due, m.id, m.due, true, m.attempts, m.hold, m.exchange, m.routing_key, m.key,
          case when $6::bool and m.rate is null then m.properties else '' end, case when $6::bool and m.rate is null then m.body else '' end, m.isolate and m.error is not null,
          case when $6::bool and m.rate is null then m.properties_json::text end, clock_timestamp(), m.deadline, m.rate is not null,
          m.rate is null and (select exists (select from postdate.rate where removed)) and postdate.rate_kept_back(m.exchange, m.routing_key, m.due)
