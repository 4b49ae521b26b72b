select version, coalesce(broker, ''), coalesce(vhost, '') from postdate.meta
