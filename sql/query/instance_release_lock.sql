-- In a transaction of pg_begin_by_index. Locks claims with ids from $1 until $2 (prunes partitions), at most $3: those of the instance $4; null: those whose owner
-- no longer exists. Locked rows are left for the next time. It reads between the live owners, in the order of the index of owned rows: so it never reads rows that a
-- live one has settled since the last vacuum, and no statistics make the planner read the whole day.
select o.id
  from (select $4::int - 1 as above, $4::int + 1 as below where $4::int is not null
        union all
        select lag(id, 1, 0) over (order by id), id
          from (select id from postdate.instance union all select 2147483647) i
         where $4::int is null) gap,
       lateral (select id from postdate.message
                 where owner > gap.above and owner < gap.below and id >= $1::uuid and id < $2::uuid
                 order by owner
                 limit $3::int
                   for update skip locked) o
 limit $3::int
