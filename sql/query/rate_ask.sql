-- $1: what, $2: the exchange or null, $3: the argument as JSON or null, $4: the exchanges that the caller may use or null, $5: whom this is done for,
-- $6 and $7: as of recur_ask, for nothing yet.
select answer, outcome, tag, said from postdate.rate_ask($1::text, $2::text, $3::text, $4::text[], $5::text, string_to_array($6::text, ','), $7::boolean)
