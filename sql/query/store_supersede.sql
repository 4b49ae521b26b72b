-- $1 id of the old message, $2 of the one that replaces it.
select postdate.message_supersede($1::uuid, $2::uuid)
