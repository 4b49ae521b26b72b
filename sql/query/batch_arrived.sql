-- $1 lane, $2 and $3 the transactions, $4 and $5 the ids, $6 the snapshot that claim_arrived gave this transaction, $7 instance. As batch_claim.sql: what arrived, but what somebody
-- has or had locked, in the order of the ids, written down as a batch. A row that arrived anew was locked by the transaction that wrote it: whether another one has it, only a lock tells.
with seen as materialized (
    select m.id, m.xmax::text <> '0' as locked, m.xmax::text = m.xmin::text as by_itself
      from postdate.message m
     where m.hold = 'b' and m.next_at is null and m.born > $2::text::xid8 and m.born <= $3::text::xid8 and m.id > $4::uuid and m.id <= $5::uuid
       and pg_visible_in_snapshot(m.born, $6::text::pg_snapshot)),
anew as materialized (
    select m.id from postdate.message m
     where m.id = any (array(select s.id from seen s where s.by_itself)) and m.id > $4::uuid and m.id <= $5::uuid and m.next_at is null
       for update skip locked),
free as materialized (
    select s.id from seen s where not s.locked union all select a.id from anew a),
skipped as materialized (
    select array(select s.id from seen s where s.locked and s.id <> all (array(select a.id from anew a))) as ids),
claimed as materialized (
    insert into postdate.batch (owner, lane, from_born, to_born, from_id, to_id, snapshot, skipped)
    select i.id, $1::text::"char", $2::text::xid8, $3::text::xid8, $4::uuid, (select f.id from free f order by f.id desc limit 1), $6::text::pg_snapshot, k.ids
      from skipped k, postdate.instance i
     where i.id = $7::int and exists (select from free)
    returning id, claimed_at),
noted as (
    insert into postdate.late (batch, from_id, to_id, ids)
    select coalesce((select c.id from claimed c), 0), $4::uuid, $5::uuid, k.ids from skipped k where k.ids <> '{}')
select m.due, m.id, m.due, false, 0, m.hold, m.exchange, m.routing_key, m.key, m.properties, m.body, false, m.properties_json::text, clock_timestamp(), m.deadline,
       (select c.id from claimed c), (select c.claimed_at from claimed c)
  from postdate.message m
 where m.id = any (array(select f.id from free f)) and m.id > $4::uuid and m.id <= $5::uuid
   and exists (select from claimed)
 order by m.id
