insert into postdate.intake_batch (consumer, message_ids, ids, redelivery) values ($1::bigint, $2::text[], $3::uuid[], $4::bigint)
