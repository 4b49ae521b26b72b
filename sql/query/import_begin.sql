insert into postdate.import_run (node, run) values ($1::text, $2::text) on conflict (node) do update set run = excluded.run
