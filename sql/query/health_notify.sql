-- How full the queue of NOTIFY is, 0 to 1. Asking also lets go of what nobody has to read any more.
select pg_notification_queue_usage()
