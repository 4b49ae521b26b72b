-- Is it the same message? One that was cancelled meanwhile has lost its content.
select 1 from postdate.message
 where due = $1::timestamptz and id = $2::uuid and exchange = $3::text and routing_key = $4::text
   and key is not distinct from $5::text
   and (state in ('cancelled', 'superseded') or (properties = $6::bytea and body = $7::bytea))
