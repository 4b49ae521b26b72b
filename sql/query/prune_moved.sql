-- What leads to a message that went with its partition is of no use.
delete from postdate.moved
 where first_id = any (array(select id from postdate.moved where latest_id < postdate.id_floor(postdate.partition_oldest()) limit 10000))
