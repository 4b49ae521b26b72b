select replace(m.identity::text, '-', '') from postdate.meta m
