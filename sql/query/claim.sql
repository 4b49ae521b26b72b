-- $1 horizon, $2 lower bound of next_at (skips dead index entries; a sweep passes 1970), ids from $3 until $7 (prune partitions), $4 rows, $5 bytes, $6 instance.
-- Locked rows are skipped. The byte budget is checked before any body is read: octet_length needs none of it, nor does JSON, which is stored as it is; the first row
-- is always taken. An instance that was taken over claims nothing. $8: handed-over messages are claimed (rescued) only if they were due before this. The fourth
-- column is true for a row whose earlier publish is in doubt. A state of a later version, which shares the database, is that version's. The claim of a row with a recurring schedule (recur) creates its next occurrence here; too late ones
-- are left to the janitor. Rows whose schedule is locked are skipped before the rows are counted: many of them would leave no room for others. A message with a rate
-- is not claimed, but waits for a slot from now on; if it was in doubt, it stays so. A message that waits for a slot is claimed after its deadline, not within the
-- horizon, because it may still get a slot. The last column: a removed rate had delayed it.
with candidate as materialized (
    select id, state, recur, next_at, octet_length(body) + octet_length(properties)
           + coalesce(pg_column_size(properties_json), 0) as size
      from postdate.message
     where owner is null and settled_at is null
       and next_at <= $1::timestamptz and next_at >= $2::timestamptz
       and id < $7::uuid and id >= $3::uuid
       and exists (select from postdate.instance where id = $6::int)
       and (state in ('scheduled', 'claimed') or state = 'handed' and due < $8::timestamptz)
       and (rate is null or next_at <= clock_timestamp())
       and (late_at is null or late_at >= now())
       and (recur is null or (select true from postdate.recur x where x.id = recur for update skip locked)
            or (select true from postdate.recur x where x.id = recur) is null)
     order by next_at
     limit $4::int
       for update skip locked),
fitting as materialized (
    select id, state, recur
      from (select *, sum(size) over (order by next_at rows unbounded preceding) - size as before from candidate) s
     where before < $5::bigint),
held as materialized (
    select postdate.recur_claim(array_agg(recur), array_agg(id)) as ids from fitting where recur is not null)
update postdate.message m
   set (owner, state, rate, next_at) = (
           select case when x.rate is null then $6::int end, case when x.rate is null or m.state <> 'scheduled' then 'claimed' else 'scheduled' end::postdate.message_state,
                  x.rate, case when x.rate is null then m.next_at else postdate.rate_until(m.deadline) end
             from (select case when m.rate is null and coalesce(m.deadline >= clock_timestamp(), true) and (select exists (select from postdate.rate where not removed)) then postdate.rate_of(m.exchange, m.routing_key) end as rate offset 0) x),
       recur = null, late_at = null
 where m.id = any (array(select id from fitting where recur is null or id <> all ((select ids from held)::uuid[])))
   and m.id < $7::uuid and m.id >= $3::uuid
returning m.due, m.id, case when m.rate is null then m.next_at else m.due end, m.id = any (array(select id from fitting where state <> 'scheduled')),
          m.attempts, m.hold, m.exchange, m.routing_key, m.key, case when m.rate is null then m.properties else '' end, case when m.rate is null then m.body else '' end, m.isolate and m.error is not null,
          case when m.rate is null then m.properties_json::text end, clock_timestamp(), m.deadline, m.rate is not null,
          m.rate is null and (select exists (select from postdate.rate where removed)) and postdate.rate_kept_back(m.exchange, m.routing_key, m.due)
