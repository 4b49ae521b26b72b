select fed_until from postdate.meta
