-- Dead letters counted by queue, reason, exchange and routing key, the largest group first: of the $6 that died last. $1 pattern of LIKE for queues, $2 reason,
-- $3 exchange, $4 routing key, $5 scope: null for any. $7 how many groups. The last column: nothing was left out.
select queue, reason, exchange, routing_key, count(*), min(died_at), max(died_at), sum(count(*)) over () < $6::int and count(*) over () <= $7::int
  from (select queue, reason, exchange, routing_key, died_at
          from postdate.lineage
         where died_at is not null
           and ($1::text is null or queue like $1::text)
           and ($2::text is null or reason = $2::text)
           and ($3::text is null or exchange = $3::text)
           and ($4::text is null or routing_key = $4::text)
           and ($5::text[] is null or exchange = any ($5::text[]))
         order by died_at desc
         limit $6::int) looked
 group by queue, reason, exchange, routing_key
 order by count(*) desc, queue, reason, exchange, routing_key
 limit $7::int
