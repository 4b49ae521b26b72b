-- What gateways are handing over to RabbitMQ just now. A message is `handed` from the moment at which it is stored, or claimed, for that: with a next_at that
-- leaves RabbitMQ the time to deliver it. A row here says which gateway has yet to bring some of them there; it is removed when RabbitMQ has taken all of them.
create table postdate.handing (
    id    uuid primary key default gen_random_uuid(),
    owner integer not null,
    ids   uuid[] not null
);
alter table postdate.handing alter column ids set storage external; -- random bits: nothing to compress

-- What an instance that is gone (null: any), or one that gives it up, had yet to bring to RabbitMQ is in doubt. RabbitMQ may have it: then the relay delivers it on time
-- and settles it, so it is tried a little later than due, or it would come twice. Some at a time: true, if there may be more. What somebody has
-- locked, and days that somebody has, are left for the next time.
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
