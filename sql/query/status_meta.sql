select version, coalesce(broker, ''), coalesce(vhost, ''), clock_timestamp(), coalesce(prefix, '') from postdate.meta
