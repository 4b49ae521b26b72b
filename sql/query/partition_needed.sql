-- $1 name; retention in ms of $2 delivered, $3 failed, $4 cancelled messages.
select postdate.partition_needed($1::text, $2::int8 * interval '1 ms', $3::int8 * interval '1 ms', $4::int8 * interval '1 ms')
