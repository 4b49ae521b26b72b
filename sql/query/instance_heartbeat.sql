update postdate.instance set heartbeat_at = clock_timestamp() where id = $1::int
