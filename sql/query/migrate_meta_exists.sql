-- The schema; its table; is that one of a release? All of it from one snapshot: to_regclass sees what was committed since.
select n.oid is not null, c.oid is not null, a.attname is not null
  from (select) one
  left join pg_namespace n on n.nspname = 'postdate'
  left join pg_class c on c.relnamespace = n.oid and c.relname = 'meta'
  left join pg_attribute a on a.attrelid = c.oid and a.attname = 'oldest_gateway' and not a.attisdropped
