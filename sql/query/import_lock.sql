-- Are these ($1) still asleep: whoever locks them wakes them. And are there messages with the ids ($2) that they get.
with asleep as materialized (select i.id from postdate.import i where i.id = any ($1::uuid[]) and i.message is null for update)
select u.id in (select a.id from asleep a), u.message in (select m.id from postdate.message m where m.id = any ($2::uuid[]))
  from unnest($1::uuid[], $2::uuid[]) with ordinality u (id, message, n) order by u.n
