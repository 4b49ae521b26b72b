-- What a batch that follows in this transaction brings, and that no trigger is to note it again.
insert into postdate.forecast_change select $1::text[], $2::int[], $3::int[]
 where set_config('postdate.forecast_noted', 'yes', true) = 'yes'
