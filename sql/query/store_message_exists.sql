select 1 from postdate.message where due = $1::timestamptz and id = $2::uuid
