-- $1 broker, $2 vhost ('' leaves what is there), $3 overwrite what is recorded already, $4 the prefix, which goes with the vhost
update postdate.meta
   set broker = case when $1::text <> '' and (broker is null or $3::bool) then $1::text else broker end,
       vhost  = case when $2::text <> '' and (vhost is null or $3::bool) then $2::text else vhost end,
       prefix = case when $2::text <> '' and (prefix is null or $3::bool) then $4::text else prefix end
