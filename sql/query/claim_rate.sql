-- Claims a portion of what waits for slots of one rate, whichever has waited longest: parameters as claim.sql, of which $2 and $8 say nothing here. The row of the rate is locked, so two gateways take no slot twice; where one has
-- it, the other goes on with the next rate. A message is to be published at its slot, and never before it is due.
with turn as materialized (
    select r.id, r.per_second, postdate.rate_first(r, clock_timestamp()) as first, postdate.rate_portion(r) as portion, r.removed
      from postdate.rate r
     where not r.paused and r.slot_at <= $1::timestamptz and $2::timestamptz is not null and $8::timestamptz is not null
       and exists (select from postdate.message m where m.rate = r.id and m.settled_at is null and m.id < $7::uuid and m.id >= $3::uuid)
       and exists (select from postdate.instance where id = $6::int)
     order by r.slot_at limit 1
       for update skip locked),
slots as materialized (
    select t.*, least($4::int, t.portion, case when t.removed then t.portion else floor(extract(epoch from $1::timestamptz - t.first) * t.per_second)::int + 1 end) as n from turn t),
candidate as materialized (
    select m.id, m.state, octet_length(m.body) + octet_length(m.properties) + coalesce(pg_column_size(m.properties_json), 0) as size
      from postdate.message m
     where m.rate = (select s.id from slots s) and m.settled_at is null and m.id < $7::uuid and m.id >= $3::uuid
     order by m.id
     limit (select greatest(s.n, 0) from slots s)
       for update skip locked),
fitting as materialized (
    select id, state, row_number() over (order by id) - 1 as nth
      from (select *, sum(size) over (order by id rows unbounded preceding) - size as before from candidate) s
     where before < $5::bigint),
taken as (
    update postdate.rate r
       set slot_at = s.first + (select count(*) from fitting) / s.per_second * interval '1 s'
      from slots s
     where r.id = s.id and not s.removed and exists (select from fitting))
update postdate.message m
   set owner = $6::int, state = 'claimed', rate = null,
       next_at = greatest(m.due, case when s.removed then m.due else date_trunc('milliseconds', s.first + f.nth / s.per_second * interval '1 s') end)
  from fitting f, slots s
 where m.id = f.id and m.id = any (array(select id from fitting)) and m.id < $7::uuid and m.id >= $3::uuid
returning m.due, m.id, m.next_at, f.state <> 'scheduled',
          m.attempts, m.hold, m.exchange, m.routing_key, m.key, m.properties, m.body, m.isolate and m.error is not null,
          m.properties_json::text, clock_timestamp(), m.deadline
