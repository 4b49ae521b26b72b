-- $1 how many deliveries of one session can be unacknowledged at most, $2 for how many ms the caller has been running. RabbitMQ sends a session no more than that
-- before it has read acknowledgements, however late it reads them: so of each session only the last batches with as many messages can come back. Older than an hour:
-- it was redelivered already, to the caller or to others.
delete from postdate.intake_batch
 where id in (select id
                from (select id, stored_at, coalesce(sum(cardinality(ids)) over (
                                 partition by consumer order by id desc rows between unbounded preceding and 1 preceding), 0) as later
                        from postdate.intake_batch) b
               where later >= $1::bigint or ($2::bigint > 3600000 and stored_at < now() - interval '1 hour'))
