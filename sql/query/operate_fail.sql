-- $3 the caller, to be recorded; null: the database's user
select result, latest from postdate.do_fail($1::uuid, $2::text[], coalesce($3::text, session_user::text))
