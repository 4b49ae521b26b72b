-- Not bound to a snapshot: what was counted before the lock was had. enable_hashjoin: as in store_redelivery_count.
select last_value, is_called, set_config('lock_timeout', '100ms', true), set_config('enable_hashjoin', 'on', true) from postdate.redelivery
