-- The identity is a newer column than the table.
select version, coalesce(broker, ''), coalesce(vhost, ''), coalesce(to_jsonb(meta) ->> 'identity', '') from postdate.meta
