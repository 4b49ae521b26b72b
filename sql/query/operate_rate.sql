-- The rate for a slot of which message $1 waits, and about when that comes (null: it is paused).
select r.exchange, r.routing_key, postdate.rate_shown(r.per_second), r.paused, postdate.rate_slot($1::uuid)
  from postdate.message m join postdate.rate r on r.id = m.rate
 where m.id = $1::uuid and m.settled_at is null and not r.removed
