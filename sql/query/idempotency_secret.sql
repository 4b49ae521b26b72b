select bytes from postdate.secret
