select postdate.late_look($1::timestamptz[], $2::timestamptz[])
