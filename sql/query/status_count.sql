-- One partition: how many rows in each state, looking at $3 rows at most; the number looked at comes with every row.
select state::text, count(*), sum(count(*)) over ()::bigint
  from (select state from postdate.message where due >= $1::timestamptz and due < $2::timestamptz limit $3::bigint) s
 group by state
