-- How full the NOTIFY queue is, 0 to 1. The query also removes entries that all sessions have read.
select pg_notification_queue_usage()
