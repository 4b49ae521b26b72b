-- What rightly keeps work back: how many schedules are paused, and the first of them; how many leave out their occurrences, the first of them, and how many they have left out, up to
-- 100 each; how many rates are paused, the first of them, and how many messages wait there, up to 10,000 each. A thousand schedules of each kind at most.
with paused as materialized (select r.name from postdate.recur r where r.paused limit 1000),
     behind as materialized (
         select v.name, v.left_out
           from (select r.name from postdate.recur r where r.overlap = 'skip' and r.skipped > 0 and not r.paused limit 1000) c
           join postdate.recurring v on v.name = c.name
          where v.held_by = 'overlap'),
     stopped as materialized (
         select r.exchange, postdate.rate_waiting(r.id, 10000) as waiting from postdate.rate r where r.paused and not r.removed)
select (select count(*) from paused), coalesce((select min(name) from paused), ''),
       (select count(*) from behind), coalesce((select min(name) from behind), ''), coalesce((select sum(left_out) from behind), 0)::int8,
       (select count(*) from stopped), coalesce((select min(exchange) from stopped), ''), coalesce((select sum(waiting) from stopped), 0)::int8
