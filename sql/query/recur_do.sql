-- $1: what, $2: the name or null, $3: the argument as JSON or null, $4: the exchanges that the caller may use or null.
select answer::text, refusal from postdate.recur_try($1::text, $2::text, $3::text::jsonb, $4::text[])
