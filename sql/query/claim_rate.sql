-- Claims a portion of the messages that wait for slots of the rate $8: $1 rows, $2 bytes, $3 instance, $4, $5 bounds of ids (prune partitions), $6 as $3 of
-- claim_rate_turns.sql, $7 ms ahead. The row of the rate is locked, so two gateways take no slot twice; where one has it, the other goes on with another rate. Slots
-- are counted from this moment on, so one may be taken however long the way here was. A message is to be published at its slot, and never before it is due. One
-- whose deadline lies before the first of the slots is passed over: claim.sql ends it when that has passed.
with turn as materialized (
    select r.id, r.per_second, r.from_id, clock_timestamp() as now_at, postdate.rate_first(r, clock_timestamp()) as first
      from postdate.rate r
     where r.id = $8::int and not r.paused and not r.removed and postdate.rate_next(r.slot_at, r.per_second, clock_timestamp()) <= clock_timestamp() + $7::int * interval '1 ms'
       and exists (select from postdate.instance where id = $3::int)
       for no key update skip locked),
slots as materialized (
    select t.*, least($1::int, floor(extract(epoch from t.now_at + $7::int * interval '1 ms' - t.first) * t.per_second)::int + 1) as n from turn t),
first as materialized (
    select array_agg(w.id) as ids
      from (select m.id from postdate.message m
             where m.rate = $8::int and m.settled_at is null and m.owner is null and m.state in ('scheduled', 'claimed')
               and m.id >= $4::uuid and m.id < $5::uuid
               and m.id >= coalesce((select postdate.rate_from(s.from_id, s.now_at) from slots s where not $6::bool), $4::uuid)
               and (m.deadline is null or m.deadline >= (select greatest(s.first, s.now_at) from slots s))
             order by m.rate, m.id
             limit coalesce((select s.n from slots s), 0)) w),
candidate as materialized (
    select m.id, m.state,
           octet_length(m.body) + octet_length(m.properties) + coalesce(pg_column_size(m.properties_json), 0) as size
      from postdate.message m
     where m.id = any ((select f.ids from first f)::uuid[]) and m.id >= $4::uuid and m.id < $5::uuid
       and m.rate = $8::int and m.settled_at is null and m.owner is null
       for update skip locked),
fitting as materialized (
    select id, state, row_number() over (order by id) - 1 as nth
      from (select *, sum(size) over (order by id rows unbounded preceding) - size as before from candidate) s
     where before < $2::bigint),
taken as (
    update postdate.rate r
       set slot_at = s.first + (select count(*) from fitting) / s.per_second * interval '1 s',
           from_id = (select id from fitting order by id desc limit 1)
      from slots s
     where r.id = s.id and exists (select from fitting))
update postdate.message m
   set owner = $3::int, state = 'claimed', rate = null,
       next_at = greatest(m.due, (select date_trunc('milliseconds', s.first + (array(select f.nth from fitting f order by f.id))[array_position(array(select f.id from fitting f order by f.id), m.id)]
                                                     / s.per_second * interval '1 s') from slots s))
 where m.id = any (array(select id from fitting)) and m.id >= $4::uuid and m.id < $5::uuid
returning m.due, m.id, m.next_at, m.id = any (array(select id from fitting where state <> 'scheduled')),
          m.attempts, m.hold, m.exchange, m.routing_key, m.key, m.properties, m.body, m.isolate and m.error is not null,
          m.properties_json::text, clock_timestamp(), m.deadline, false, false
