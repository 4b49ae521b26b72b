-- Releases the messages that wait for the removed rate $1: they are claimed like any other message from now on: by a range of ids, $2 and $3, and 1,000 at a time.
update postdate.message m
   set rate = null, next_at = m.due
 where m.id = any (array(select x.id from postdate.message x
                          where x.rate = $1::int and x.settled_at is null and x.owner is null and x.id >= $2::uuid and x.id < $3::uuid
                          order by x.rate, x.id limit 1000 for update skip locked))
   and m.id >= $2::uuid and m.id < $3::uuid
