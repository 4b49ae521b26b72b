-- $1: so many exit queues the gateway that starts now is to have. Returns relay_marks' numbers of those that there are, and that are bound.
update postdate.meta set exit_queues = greatest(exit_queues, $1::int), exit_wanted = $1::int
returning exit_queues::int, case when exit_bound = 0 and exit_queues > 1 then -1 else exit_bound end::int
