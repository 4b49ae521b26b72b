update postdate.meta set fed_until = greatest(fed_until, clock_timestamp() + $1::bigint * interval '1 ms')
