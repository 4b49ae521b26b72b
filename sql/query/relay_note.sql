-- $1 instance; $2 what it took and was due before that is settled; $3 when the last ping that it took was sent (null: none); $4 its consumers
update postdate.instance
   set relay_at = clock_timestamp(), relay_low = $2::timestamptz, relay_ping = greatest(relay_ping, $3::timestamptz), relay_consumers = $4::int
 where id = $1::int
