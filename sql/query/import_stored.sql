-- Which messages there are, between the least and the greatest of their ids.
select w.id
  from unnest($1::uuid[]) w (id), lateral (select from postdate.message m where m.id = w.id and m.id between $2::uuid and $3::uuid limit 1) x
