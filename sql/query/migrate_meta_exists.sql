-- The schema; its table? Both from one snapshot: to_regclass also sees later commits.
select n.oid is not null, c.oid is not null
  from (select) one
  left join pg_namespace n on n.nspname = 'postdate'
  left join pg_class c on c.relnamespace = n.oid and c.relname = 'meta'
