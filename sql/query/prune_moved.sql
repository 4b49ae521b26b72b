-- $1: less than every id that the oldest partition can hold. What leads to a message that went with its partition is of no use.
delete from postdate.moved
 where first_id = any (array(select id from postdate.moved where latest_id < $1::uuid limit 10000))
