-- $1 name; $2 for how many ms what was delivered is kept, $3 what failed, $4 what was cancelled.
select postdate.partition_needed($1::text, $2::int8 * interval '1 ms', $3::int8 * interval '1 ms', $4::int8 * interval '1 ms')
