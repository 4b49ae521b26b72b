-- When a message is tried next, and whether it waits. The day is known when its statement is planned, so that one partition is looked at: a join
-- by the column planned all of them, which took 120 ms with two years of days.
create function postdate.message_waits(id uuid, out next_at timestamptz, out waits boolean)
language plpgsql stable strict set plan_cache_mode = force_custom_plan as $$
begin
    select m.next_at, m.state in ('scheduled', 'claimed', 'handed') into message_waits.next_at, message_waits.waits
      from postdate.message m where m.due = postdate.id_due(message_waits.id) and m.id = message_waits.id;
end $$;
