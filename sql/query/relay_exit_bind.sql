-- The wanted number of exit queues get released messages once all gateways consume all of them, because messages in a queue without consumers would wait there.
update postdate.meta set exit_bound = exit_wanted
 where exit_bound <> exit_wanted and not exists (select from postdate.instance where cardinality(relay_consumers) < exit_queues)
