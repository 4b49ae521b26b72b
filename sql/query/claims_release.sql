-- Claims whose owner no longer exists wait again. They stay `claimed`: their publish may have begun. $1: nothing
-- is claimed that is due later than this (prunes partitions).
update postdate.message m set owner = null
 where m.owner is not null and m.due <= $1::timestamptz
   and not exists (select from postdate.instance i where i.id = m.owner)
