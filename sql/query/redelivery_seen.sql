-- Not bound to a snapshot: what was counted before the lock was had.
select last_value, is_called from postdate.redelivery
