-- $1 operation, $2 ids in order, $3 ms to shift by, $4 scope, $5 who asks (null: the database's user)
select postdate.do_bulk($1::text, $2::uuid[], $3::bigint * interval '1 ms', $4::text[], coalesce($5::text, session_user::text))
