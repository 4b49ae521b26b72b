-- As many exit queues as are wanted get what comes out: once all gateways read all of them, for what is in one that nobody reads waits there.
update postdate.meta set exit_bound = exit_wanted
 where exit_bound <> exit_wanted and not exists (select from postdate.instance where cardinality(relay_consumers) < exit_queues)
