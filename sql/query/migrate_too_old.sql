-- Gateways that run and know only an older version than $1.
select string_agg(format('%s (version %s)', i.name, i.version), ', ' order by i.name)
  from postdate.instance i where i.version < $1::int and postdate.instance_lives(i, $2::bigint)
