-- Claims whose owner no longer exists wait again. They stay `claimed`: their publish may have begun. $1, $2: least and greatest due
-- (prune partitions). A row that somebody else has locked is left for the next time.
update postdate.message m set owner = null
 where m.id = any (array(
    select id from postdate.message
     where owner is not null and due >= $1::timestamptz and due <= $2::timestamptz
       and not exists (select from postdate.instance i where i.id = owner)
       for update skip locked))
   and m.due >= $1::timestamptz and m.due <= $2::timestamptz
