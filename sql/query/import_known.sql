-- Has an import that came to no end stored these entries: the plugin has them again. A copy that is still asleep goes, as a new one comes.
with stale as (delete from postdate.import i where i.id = any ($1::uuid[]) and i.message is null)
select u.id in (select i.id from postdate.import i where i.id = any ($1::uuid[]) and i.message is not null) from unnest($1::uuid[]) with ordinality u (id, n) order by u.n
