-- Version 22: the names of macros and time zones are in any case of letters, and "I" is the great form of "i" also in a Turkish database.
do $do$
begin
    execute replace(pg_get_functiondef('postdate.cron_macro(text)'::regprocedure), '(expression,', '(expression collate "C",');
    execute replace(replace(replace(pg_get_functiondef('postdate.zone_find(text)'::regprocedure),
        'lower(z.name', 'lower(z.name collate "C"'), 'lower(zone', 'lower(zone collate "C"'), 'replace(zone,', 'replace(zone collate "C",');
end $do$;
