-- Are these still asleep: whoever locks them wakes them.
with asleep as materialized (select i.id from postdate.import i where i.id = any ($1::uuid[]) and i.message is null for update)
select u.id in (select a.id from asleep a) from unnest($1::uuid[]) with ordinality u (id, n) order by u.n
