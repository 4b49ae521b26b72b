select 1 from postdate.message where id = $1::uuid
