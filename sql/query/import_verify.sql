-- How messages stand that an import has stored. $1 their ids, $2 when they were due. A row that is gone has been settled for longer than
-- it is kept, if it was due.
select coalesce(m.state::text, case when w.due < now() then 'gone' else 'missing' end),
       m.id is not null and m.due is distinct from w.due and w.due > m.created_at, count(*)
  from unnest($1::uuid[], $2::timestamptz[]) w (id, due) left join postdate.message_now m on m.id = w.id
 group by 1, 2
