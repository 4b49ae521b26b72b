-- $1 instance; $2 all messages that it consumed and that were due before this are settled; of each exit queue that it knows of, $3 when the last ping that came out
-- there was sent (null: none), and $4 its consumers; $5 and $6: when the last ping that RabbitMQ's last hop brought was sent, from its exit queue 1 and 2 (null:
-- none); $7 when $2 was found: the note's time, because messages consumed since are not in it
update postdate.instance
   set relay_at = least($7::timestamptz, clock_timestamp()), relay_low = $2::timestamptz, relay_pings = $3::timestamptz[], relay_consumers = $4::int[],
       last_hop_ping_1 = coalesce($5::timestamptz, last_hop_ping_1), last_hop_ping_2 = coalesce($6::timestamptz, last_hop_ping_2)
 where id = $1::int
