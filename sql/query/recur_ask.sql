-- $1: what, $2: the name or null, $3: the argument as JSON or null, $4: the exchanges that the caller may use or null, $5: whom this is done for,
-- $6: versions, one of which the schedule must have, or null, $7: there must be none of this name.
select answer, outcome, tag, said from postdate.recur_ask($1::text, $2::text, $3::text, $4::text[], $5::text, string_to_array($6::text, ','), $7::boolean)
