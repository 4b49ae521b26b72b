-- The schema; its table; is that one of a release?
select to_regnamespace('postdate') is not null, to_regclass('postdate.meta') is not null,
       exists (select from pg_attribute where attrelid = to_regclass('postdate.meta') and attname = 'made_at')
