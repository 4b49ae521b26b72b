-- Is it the same message? One that was cancelled meanwhile has lost its content.
select 1 from postdate.message
 where id = $1::uuid and exchange = $2::text and routing_key = $3::text
   and key is not distinct from $4::text
   and (state in ('cancelled', 'superseded') or (properties = $5::bytea and body = $6::bytea))
