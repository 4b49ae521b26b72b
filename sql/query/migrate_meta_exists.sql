select to_regnamespace('postdate') is not null, to_regclass('postdate.meta') is not null
