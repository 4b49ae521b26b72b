-- The partitions of postdate.message (core/base/partition_span.h): days and months, and the tables of months, of which they are partitions. From the
-- catalogs, without a lock on any. ends: the day after the last one. parent: of what it is, or was, a partition.
create view postdate.partition as
select c.oid, c.relname::text as name, coalesce(p.relname::text, '') as parent, c.relkind = 'p' as is_month_table, length(d.digits) = 6 as is_month,
       to_date(d.digits, 'YYYYMMDD') as begins, (to_date(d.digits, 'YYYYMMDD') + case length(d.digits) when 6 then interval '1 month' else interval '1 day' end)::date as ends,
       i.inhrelid is not null and not i.inhdetachpending as attached, coalesce(i.inhdetachpending, false) as detach_pending
  from pg_class c
  left join pg_inherits i on i.inhrelid = c.oid
  left join pg_class p on p.oid = i.inhparent,
       lateral (select substring(c.relname::text from '[0-9]+$') as digits) d
 where c.relname >= 'message_0' and c.relname < 'message_n' and c.relnamespace = 'postdate'::regnamespace
   and (c.relkind = 'r' and c.relname ~ '^message_[0-9]{6}([0-9]{2})?$' or c.relkind = 'p' and c.relname ~ '^message_month_[0-9]{6}$');

-- The first instant of the oldest one; null: there is none.
create function postdate.partition_oldest() returns timestamptz language sql stable as $$
    select min(p.begins)::timestamp at time zone 'UTC' from postdate.partition p where p.attached and not p.is_month_table
$$;

-- LIKE and then ATTACH: `create table … partition of` would lock the parent against claims.
create function postdate.partition_make(name text, kind text, parent text, begins date, ends date) returns void language plpgsql as $$
begin
    execute format('create table postdate.%I (like postdate.message including all) %s', name, kind);
    execute format('alter table postdate.%I attach partition postdate.%I for values from (%L) to (%L)', parent, name,
        postdate.id_floor(begins::timestamp at time zone 'UTC'), postdate.id_floor(ends::timestamp at time zone 'UTC'));
end $$;

-- How many partitions are missing from yesterday on until so many days from now. The first of these are made, at most `most`: whoever calls it then is alone
-- by a row of postdate.gate. A month has days if it has some already, or begins in 14 days.
create function postdate.partitions_make(ahead integer, most integer) returns integer language plpgsql as $$
declare
    today date := now() at time zone 'UTC';
    day date := today - 1;
    month date;
    upto date;
    missing integer := 0;
    m record;
begin
    while day <= today + ahead loop
        upto := (select p.ends from postdate.partition p where p.begins <= day and p.ends > day and not p.is_month_table);
        if upto is null then
            month := date_trunc('month', day);
            upto := month + interval '1 month';
            select coalesce(bool_or(not p.is_month), false) or month <= today + 14 as in_days,
                   coalesce(min(p.name) filter (where p.is_month_table and p.attached), min(p.parent) filter (where p.parent = 'message' and not p.is_month_table)) as parent into m
              from postdate.partition p where p.begins >= month and p.ends <= upto;
            if missing < most and m.parent is null then
                m.parent := 'message_month_' || to_char(month, 'YYYYMM');
                perform postdate.partition_make(m.parent, 'partition by range (id)', 'message', month, upto);
            end if;
            if m.in_days then upto := day + 1; else day := month; end if;
            if missing < most then
                perform postdate.partition_make('message_' || to_char(day, case when m.in_days then 'YYYYMMDD' else 'YYYYMM' end), '', m.parent, day, upto);
            end if;
            missing := missing + 1;
        end if;
        day := upto;
    end loop;
    return missing;
end $$;

-- Does it hold a row that is live, or younger than its retention? Looks at indexes and at no more than one row of the table, however large it is: what is not in
-- message_kept was delivered within an hour of its due time.
create function postdate.partition_needed(partition text, delivered interval, failed interval, cancelled interval) returns boolean language plpgsql
set enable_seqscan = off set enable_bitmapscan = off as $$ -- the first of a million looks near to a planner that believes that many wait
declare
    p postdate.partition := (select x from postdate.partition x where x.name = partition);
    needed boolean;
begin
    execute format($q$
        select exists (select from postdate.%1$I where owner is null and settled_at is null and next_at is not null)
            or exists (select from postdate.%1$I where owner is not null)
            or exists (select from postdate.%1$I m, postdate.frontier f where m.id > f.to_id and m.next_at is null)
            or (select x.l < %3$L and f.to_id >= %2$L from (select postdate.late_from() as l) x, postdate.frontier f)
            or exists (select from unnest('{delivered,failed,cancelled,superseded,expired}'::postdate.message_state[], array[$1, $2, $3, $3, $2]) k (state, age)
                        where exists (select from postdate.%1$I m where m.state = k.state and m.settled_at > now() - k.age and m.settled_at is not null
                                         and (m.state <> 'delivered' or m.settled_at - m.due > interval '1 hour')))
            or exists (select from postdate.batch b where b.to_id >= %2$L and b.from_id < %3$L
                          and b.to_id <= coalesce((select x.to_id from postdate.batch x where x.to_id >= %3$L order by x.to_id limit 1), 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                          and (not b.done or b.settled_at > now() - $1))
            or exists (select from postdate.%1$I) and %4$L::timestamptz + interval '1 hour' > now() - $1 $q$,
        partition, postdate.id_floor(p.begins::timestamp at time zone 'UTC'), postdate.id_floor(p.ends::timestamp at time zone 'UTC'), p.ends::timestamp at time zone 'UTC')
        into needed using delivered, failed, cancelled;
    return needed;
end $$;
