-- Operations on many messages, chunk by chunk.

-- One chunk of a bulk operation: those of ids that nobody has locked, and of which fail wants those in doubt. Returns how many were changed.
create function postdate.do_bulk(operation text, ids uuid[], shift interval, scope text[], who text) returns integer
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    one uuid;
    done integer := 0;
    result text;
begin
    for one in
        select x.id from postdate.message x
         where x.id = any (ids) and (operation <> 'fail' or x.state = 'claimed' and x.owner is null)
         order by x.id for update skip locked
    loop
        result := case operation
            when 'cancel' then (postdate.do_cancel(one, scope)).result
            when 'reschedule' then (postdate.do_reschedule(one, null, shift, scope)).result
            when 'retry' then (postdate.do_retry(one, scope)).result
            else (postdate.do_fail(one, scope, who)).result end;
        done := done + (result = 'done')::integer;
    end loop;
    return done;
end $$;
