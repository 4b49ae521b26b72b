select version, coalesce(broker, ''), coalesce(vhost, ''), clock_timestamp() from postdate.meta
