-- $1: {"schedules": {name: definition}}, $2: only compare, $3: the prefix of their names, $4: the caller.
select answer, refusal from postdate.recur_apply_ask($1::text, $2::boolean, $3::text, $4::text)
