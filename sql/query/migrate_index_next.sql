-- The next statement, and how long it may wait for locks, towards the indexes that a step made `on only` a partitioned table: each partition gets
-- its own, built beside writers, then the index of the table takes it in. One whose building was interrupted is made anew.
select case when n.statement like '% concurrently %' then '120s' else $1::text end, n.statement
  from pg_index i
  join pg_class whole on whole.oid = i.indexrelid and whole.relkind = 'I' and whole.relnamespace = 'postdate'::regnamespace
  join pg_inherits h on h.inhparent = i.indrelid and not h.inhdetachpending
  join pg_class part on part.oid = h.inhrelid
 cross join lateral (select left(format('%s_%s', part.relname, whole.relname), 63)) own (name)
  left join pg_class c on c.relname = own.name and c.relnamespace = whole.relnamespace
  left join pg_index built on built.indexrelid = c.oid
 cross join lateral (select case
        when built.indisvalid or c.relkind = 'I' then format('alter index postdate.%I attach partition postdate.%I', whole.relname, own.name)
        when c.oid is not null then format('drop index concurrently postdate.%I', own.name)
        else regexp_replace(pg_get_indexdef(whole.oid), E' INDEX \\S+ ON ONLY \\S+ ', format(
            case part.relkind when 'p' then ' index %I on only postdate.%I ' else ' index concurrently %I on postdate.%I ' end,
            own.name, part.relname)) end) n (statement)
 where not i.indisvalid
   and not exists (select from pg_inherits t join pg_index x on x.indexrelid = t.inhrelid where t.inhparent = whole.oid and x.indrelid = part.oid)
 order by part.relname desc
 limit 1
