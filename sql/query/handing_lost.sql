-- RabbitMQ has lost all messages that it held: they become scheduled again, as before the hand-over. Except messages in a handing, messages due within two seconds,
-- which gateways may be publishing, and locked ones: these are rescued after the grace.
with lost as materialized (
    select m.id from postdate.message m
     where m.state = 'handed' and m.settled_at is null and m.owner is null and m.due > clock_timestamp() + interval '2 s'
       and m.id <> all (array(select i from postdate.handing h, unnest(h.ids) i))
       for update skip locked)
update postdate.message m
   set state = 'scheduled', next_at = m.due
 where m.id = any (array(select id from lost))
