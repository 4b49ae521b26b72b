-- Not bound to a snapshot: includes increments before the lock was acquired.
select last_value, is_called, set_config('lock_timeout', '100ms', true) from postdate.redelivery
