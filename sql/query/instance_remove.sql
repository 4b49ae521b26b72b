delete from postdate.instance where id = $1::int
