select postdate.moved_note($1::uuid, $2::uuid)
