-- Writes only what changed: a row version for each start of a gateway would be of no use.
update postdate.settings s
   set exchange = n.exchange, allow = n.allow, max_delay_ms = n.max_delay_ms, max_body = n.max_body, max_properties = n.max_properties,
       key_memory_ms = n.key_memory_ms, wake_ms = n.wake_ms, prefix = n.prefix, broker_holds = coalesce(n.broker_holds, s.broker_holds), recorded_at = clock_timestamp(),
       allow_like = (select array_agg(replace(replace(replace(replace(a, E'\\', E'\\\\'), '%', E'\\%'), '_', E'\\_'), '*', '%')) from unnest(n.allow) a)
  from (select $1::text as exchange, $2::text[] as allow, $3::bigint as max_delay_ms, $4::bigint as max_body, $5::int as max_properties,
               $6::bigint as key_memory_ms, $7::bigint as wake_ms, $8::text as broker_holds, coalesce((select m.prefix from postdate.meta m), $9::text) as prefix) n
 where (s.exchange, s.allow, s.max_delay_ms, s.max_body, s.max_properties, s.key_memory_ms, s.wake_ms, s.broker_holds, s.prefix)
       is distinct from (n.exchange, n.allow, n.max_delay_ms, n.max_body, n.max_properties, n.key_memory_ms, n.wake_ms, coalesce(n.broker_holds, s.broker_holds), n.prefix)
