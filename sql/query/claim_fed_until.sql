select coalesce(fed_until, 'epoch') from postdate.meta
