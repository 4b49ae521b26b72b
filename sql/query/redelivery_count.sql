select nextval('postdate.redelivery')
