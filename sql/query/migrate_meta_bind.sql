-- $1 broker, $2 vhost ('' leaves what is there), $3 overwrite what is recorded already
update postdate.meta
   set broker = case when $1::text <> '' and (broker is null or $3::bool) then $1::text else broker end,
       vhost  = case when $2::text <> '' and (vhost is null or $3::bool) then $2::text else vhost end
