-- $4 to $7: as of recur_ask, for nothing.
select answer, outcome, tag, said from postdate.retry_policy_ask($1::text, $2::text, $3::text, $4::text[], $5::text, string_to_array($6::text, ','), $7::boolean)
