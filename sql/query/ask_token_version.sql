select version from postdate.token_version
