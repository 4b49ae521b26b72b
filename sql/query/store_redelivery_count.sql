-- enable_hashjoin: for dedupe_candidates. Sessions do without it (pg.c), and that would compare all with all.
select nextval('postdate.redelivery'), set_config('lock_timeout', '100ms', true) is not null, set_config('enable_hashjoin', 'on', true)
