select nextval('postdate.redelivery'), set_config('lock_timeout', '100ms', true) is not null
