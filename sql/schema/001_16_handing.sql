-- Handings: hand-overs in progress. A message is `handed` from the moment at which it is stored or claimed for hand-over, with a next_at that leaves RabbitMQ the
-- time to release it. A row here has the gateway that has yet to publish some of them to RabbitMQ; it is removed when RabbitMQ has confirmed all.
create table postdate.handing (
    id    uuid primary key default gen_random_uuid(),
    owner integer not null,
    ids   uuid[] not null
);
alter table postdate.handing alter column ids set storage external; -- random bits: nothing to compress

-- Releases the handings of an instance that has ended (null: any such), or that releases them: their messages are in doubt. RabbitMQ may have them: then the relay
-- delivers and settles them on time, so they are claimed a little later than due, else they would be delivered twice. Some at a time: true, if there may be more.
-- Locked rows and days are left for the next call.
create function postdate.handing_release(instance_id integer, locked_from timestamptz[], locked_to timestamptz[]) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
    h postdate.handing;
    free uuid[];
    locked uuid[];
    left_ uuid[];
begin
    for h in
        select * from postdate.handing x
         where x.owner = instance_id or instance_id is null and not exists (select from postdate.instance i where i.id = x.owner)
           for update skip locked
    loop
        free := array(select i from unnest(h.ids) i
                       where not exists (select from unnest(locked_from, locked_to) d (begins, ends)
                                          where d.begins <= postdate.id_due(i) and d.ends > postdate.id_due(i)));
        left_ := array(select i from unnest(h.ids) i where i <> all (free));
        locked := '{}';
        if free <> '{}' then -- of an empty list no day is pruned
            locked := array(select m.id from postdate.message m
                             where m.id = any (free) and m.state = 'handed' and m.owner is null and m.settled_at is null order by m.id for update skip locked);
            left_ := left_ || array(select m.id from postdate.message m where m.id = any (free) and m.id <> all (locked) and m.state = 'handed' and m.settled_at is null);
        end if;
        if locked <> '{}' then
            update postdate.message m set state = 'claimed', next_at = m.due + interval '1.5 s' where m.id = any (locked);
        end if;
        if left_ = '{}' then
            delete from postdate.handing x where x.id = h.id;
        elsif left_ <> h.ids then
            update postdate.handing x set ids = left_ where x.id = h.id;
        end if;
        if locked <> '{}' then return true; end if;
    end loop;
    return false;
end $$;
