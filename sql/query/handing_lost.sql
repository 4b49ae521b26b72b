-- What RabbitMQ held is gone: gateways have it again, as it was before it was handed over. Not what is being handed over now, nor what is due within
-- two seconds, for gateways may be publishing that, nor what somebody has locked: it is rescued after the grace.
with lost as materialized (
    select m.id from postdate.message m
     where m.state = 'handed' and m.settled_at is null and m.owner is null and m.due > clock_timestamp() + interval '2 s'
       and m.id <> all (array(select i from postdate.handing h, unnest(h.ids) i))
       for update skip locked)
update postdate.message m
   set state = 'scheduled', next_at = m.due
 where m.id = any (array(select id from lost))
