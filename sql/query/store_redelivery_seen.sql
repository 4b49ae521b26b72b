-- Not bound to a snapshot: what was counted before the lock was had.
select last_value, is_called, set_config('lock_timeout', '100ms', true) from postdate.redelivery
