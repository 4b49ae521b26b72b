-- Which of $1 (from $2 until $3) the database knows.
select id from postdate.message where id = any ($1::uuid[]) and id >= $2::uuid and id < $3::uuid
