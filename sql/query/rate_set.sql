-- $1 exchange, $2 routing key, $3 messages a second, $4 burst; null: a fiftieth of the rate
select postdate.rate_set($1::text, $3::float8, $4::int4, $2::text)
