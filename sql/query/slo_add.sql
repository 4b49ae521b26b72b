insert into postdate.slo_count as s (at, grain, writer, delivered, late, again, again_late, again_later, peak)
values (date_trunc('minute', now()), 60, pg_backend_pid(), $1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::bigint)
on conflict (at, grain, writer) do update
   set delivered = s.delivered + excluded.delivered, late = s.late + excluded.late, again = s.again + excluded.again,
       again_late = s.again_late + excluded.again_late, again_later = s.again_later + excluded.again_later,
       peak = greatest(s.peak, excluded.peak)
