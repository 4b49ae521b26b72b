-- Version 22: who makes the schedules equal to a file is alone by a row of postdate.gate, too (022_gate.sql). The rest of the function stays.
do $do$
begin
    execute replace(pg_get_functiondef('postdate.recur_apply(json, boolean, text)'::regprocedure),
        'perform pg_advisory_xact_lock(1886352244, -6);',
        'perform from postdate.gate where name = ''recurring schedules'' for update;');
end $do$;
