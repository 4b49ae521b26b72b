-- [$1, $2): one day, so that one partition is touched. $3 key memory in ms. The id is compared again on deleting: a key that
-- passes to a new message meanwhile stays.
delete from postdate.key d
 using (select k.exchange, k.key, k.id from postdate.key k
         where k.due >= $1::timestamptz and k.due < $2::timestamptz
           and not exists (
            select from postdate.message m
             where m.due >= $1::timestamptz and m.due < $2::timestamptz and m.id = k.id and m.due = k.due
               and (m.state in ('scheduled', 'claimed', 'handed')
                    or (m.state in ('delivered', 'cancelled')
                        and m.settled_at > clock_timestamp() - $3::bigint * interval '1 ms')))) s
 where d.exchange = s.exchange and d.key = s.key and d.id = s.id
