-- $1 lineage, $2 number, $3 its time and $4 up to when RabbitMQ held, as this gateway knows them (null: it knows none); $5: how far ahead messages are handed over, in ms.
select h.lineage::text, h.number, h.at, h.held_until, h.lost_number, h.lost_found, h.lost_from, h.lost_to, h.look_until, clock_timestamp(), coalesce(h.lost_due, -1)
  from postdate.history_note($1::text::uuid, $2::bigint, $3::timestamptz, $4::timestamptz, $5::bigint) h
