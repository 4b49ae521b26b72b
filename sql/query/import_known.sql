-- Which entries an import that came to no end has stored: the plugin has them again. A copy that is still asleep goes, as a new one comes.
with stale as (delete from postdate.import i where i.id = any ($1::uuid[]) and i.message is null)
select i.id from postdate.import i where i.id = any ($1::uuid[]) and i.message is not null
