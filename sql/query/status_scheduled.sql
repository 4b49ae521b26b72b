-- In a transaction of pg_begin_by_index. One partition, [$1, $2): how many of the rows without an owner are scheduled, how many are claimed, in doubt; those that
-- come first, $3 at most.
select count(*) filter (where state = 'scheduled')
       + (select count(*) from (select from postdate.message m where m.id > (select f.to_id from postdate.frontier f) and m.id >= $1::uuid and m.id < $2::uuid and m.next_at is null order by m.id limit $3::bigint) p),
       count(*) filter (where state = 'claimed')
  from (select state from postdate.message where id >= $1::uuid and id < $2::uuid and owner is null and settled_at is null and next_at is not null and state <> 'handed'
         order by next_at limit $3::bigint) s
