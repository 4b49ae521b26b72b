select m.version, coalesce(m.broker, ''), coalesce(m.vhost, ''), clock_timestamp(), coalesce(m.prefix, ''), h.lost_found, h.lost_from, h.lost_to, h.look_until,
       coalesce(h.lost_due, -1)
  from postdate.meta m, postdate.history h
