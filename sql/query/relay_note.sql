-- $1 instance; $2 what it took and was due before that is settled; $3 when the last ping that it took was sent (null: none); $4 its consumers;
-- $5 and $6: the same as $3 of the pings that RabbitMQ's last hop brought, from exit queue 1 and 2
update postdate.instance
   set relay_at = clock_timestamp(), relay_low = $2::timestamptz, relay_ping = coalesce($3::timestamptz, relay_ping), relay_consumers = $4::int,
       last_hop_ping_1 = coalesce($5::timestamptz, last_hop_ping_1), last_hop_ping_2 = coalesce($6::timestamptz, last_hop_ping_2)
 where id = $1::int
