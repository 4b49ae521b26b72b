-- [$1, $2): one day, so that one partition is touched. $3 key memory in ms, $4 how many at most; $5, $6 bounds of its ids. A key that somebody has locked is left for
-- the next time. One that passed to a new message meanwhile stays: its lock finds another id. That message this statement need not see, so it
-- must not be asked for again.
delete from postdate.key d
 using (select locked.exchange, locked.key
          from (select k.exchange, k.key, k.id from postdate.key k
                 where k.due >= $1::timestamptz and k.due < $2::timestamptz
                   and not exists (
                    select from postdate.message_now m
                     where m.id >= $5::uuid and m.id < $6::uuid and m.id = k.id
                       and (m.state not in ('delivered', 'cancelled', 'superseded', 'failed', 'expired')
                            or (m.state in ('delivered', 'cancelled')
                                and postdate.lately(m.settled_at, $3::bigint))))
                offset 0) past,
               lateral (select k.exchange, k.key from postdate.key k
                         where k.exchange = past.exchange and k.key = past.key and k.id = past.id
                           for update skip locked) locked
         limit $4::bigint) s
 where d.exchange = s.exchange and d.key = s.key
