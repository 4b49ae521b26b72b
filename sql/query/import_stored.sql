-- Are there messages with these ids.
select u.id in (select m.id from postdate.message m where m.id = any ($1::uuid[])) from unnest($1::uuid[]) with ordinality u (id, n) order by u.n
