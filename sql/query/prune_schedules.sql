-- What happened to schedules that were removed three months ago.
with gone as (
    select c.name, c.id from postdate.recur_change c
     where c.what = 'remove' and c.at < now() - interval '90 days' and not exists (select from postdate.recur r where r.name = c.name)
     order by c.at limit 1000)
delete from postdate.recur_change c using gone g where c.name = g.name and c.id <= g.id
