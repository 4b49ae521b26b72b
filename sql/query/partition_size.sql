select pg_table_size(format('postdate.%I', $1::text)::regclass)
