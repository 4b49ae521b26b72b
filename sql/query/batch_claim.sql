-- $1, $2 the range that claim_next gave this transaction, $3 instance. Its plain rows, except those that are or were locked and those with a rate, in the order of
-- their ids, recorded as a batch. One statement, so one snapshot. Whether a row is locked is looked at once: who locks it after that finds the fence moved. Of an
-- instance that was taken over nothing is claimed. Columns as claim.sql, the batch, and when it was claimed. (`not in` is hashed, `<> all` is not.) Whether it has a
-- rate is asked once for each exchange, and routing key where a rate names one.
with rated as materialized (
    select p.exchange, p.key
      from (select distinct m.exchange, case when (select exists (select from postdate.rate where not removed and routing_key <> '*')) then m.routing_key else '' end as key
              from postdate.message m
             where m.id > $1::uuid and m.id <= $2::uuid and m.next_at is null and (select exists (select from postdate.rate where not removed)) offset 0) p
     where postdate.rate_of(p.exchange, p.key) is not null),
seen as materialized (
    select coalesce(array_agg(m.id) filter (where m.xmax::text <> '0'
               or (m.exchange, case when (select exists (select from postdate.rate where not removed and routing_key <> '*')) then m.routing_key else '' end) in (select r.exchange, r.key from rated r)), '{}') as held,
           count(*) as n
      from postdate.message m
     where m.id > $1::uuid and m.id <= $2::uuid and m.next_at is null),
claimed as materialized (
    insert into postdate.batch (owner, from_id, to_id, snapshot, skipped, done, settled_at)
    select i.id, $1::uuid, $2::uuid, pg_current_snapshot(), s.held, n.nothing, case when n.nothing then clock_timestamp() end
      from seen s, lateral (select cardinality(s.held) = s.n as nothing) n, postdate.instance i
     where i.id = $3::int
    returning id, claimed_at, skipped)
select m.due, m.id, m.due, false, 0, m.hold, m.exchange, m.routing_key, m.key, m.properties, m.body, false, m.properties_json::text, clock_timestamp(), m.deadline, false, false,
       (select c.id from claimed c), (select c.claimed_at from claimed c)
  from postdate.message m
 where m.id > $1::uuid and m.id <= $2::uuid and m.next_at is null
   and m.id not in (select unnest(c.skipped) from claimed c) and exists (select from claimed)
 order by m.id
