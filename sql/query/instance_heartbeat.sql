update postdate.instance set heartbeat_at = clock_timestamp(), broker_away = $2::boolean where id = $1::int
