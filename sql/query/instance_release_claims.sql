-- Claims whose owner no longer exists wait again. They stay `claimed`: their publish may have begun. $1, $2: least and greatest due
-- (prune partitions). A row that somebody else has locked is left for the next time.
-- What was claimed to be handed over is due in more than a second: the broker may have it, and then the relay delivers it on time and settles it. It is tried a little later, or it would come twice.
update postdate.message m set owner = null, next_at = next_at + case when hold = 'b' and next_at > clock_timestamp() + interval '1 s' then interval '1.5 s' else interval '0' end
 where m.id = any (array(
    select id from postdate.message
     where owner is not null and due >= $1::timestamptz and due <= $2::timestamptz
       and not exists (select from postdate.instance i where i.id = owner)
       for update skip locked))
   and m.due >= $1::timestamptz and m.due <= $2::timestamptz
