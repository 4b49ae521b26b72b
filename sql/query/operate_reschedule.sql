-- $3 when, $4 or how many ms from now
select result, latest
  from postdate.do_reschedule($1::uuid, coalesce($3::timestamptz, clock_timestamp() + $4::bigint * interval '1 ms'), null, $2::text[])
