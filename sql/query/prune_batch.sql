-- Plain rows before the frontier without a claim are delivered.
delete from postdate.batch where id = any (array(select id from postdate.batch where done and to_id < postdate.id_floor(postdate.partition_oldest()) and to_id < (select to_id from postdate.frontier) order by to_id limit 10000))
