-- $1 ids; $2, $3 their least and greatest due. A lock in the way ends it after lock_timeout; then receipts_free.sql.
-- Returns nothing: all are settled, or were before. Not those that found no way (hold 'g', receipts_unrouted.sql). An owner is publishing it, or
-- has just handed it over: that counts as an attempt, because its own settling comes too late.
update postdate.message
   set state = 'delivered', settled_at = clock_timestamp(), owner = null, error = null,
       attempts = attempts + (owner is not null)::int
 where id = any ($1::uuid[]) and due >= $2::timestamptz and due <= $3::timestamptz
   and state in ('handed', 'claimed') and hold = 'b' and settled_at is null
