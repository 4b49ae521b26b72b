-- $1 pattern, $2 attempts, $3 first and $5 longest wait in ms, $4 factor in thousandths, $6 jitter, $7 reasons, $8 ms for which a dead letter is kept
select postdate.retry_policy_set($1::text, $2::int4, $3::int8 * interval '1 ms', $4::int8 / 1000.0::float8, $5::int8 * interval '1 ms', $6::int4, $7::text[],
                                 $8::int8 * interval '1 ms')
