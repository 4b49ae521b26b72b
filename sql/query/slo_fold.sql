-- Minutes that are older than the longest window in which a minute counts become hours. Two gateways at once: what one took, the other does not see.
-- The busiest second of an hour is that of its busiest minute, of all gateways together.
with old as (
    delete from postdate.slo_count where grain = 60 and at < date_trunc('hour', now()) - interval '7 hours' returning *),
gone as (
    delete from postdate.slo_count where grain = 3600 and at < now() - $1::bigint * interval '1 ms' - interval '1 hour'),
minutes as (
    select at, sum(delivered) as delivered, sum(late) as late, sum(again) as again, sum(again_late) as again_late,
           sum(again_later) as again_later, sum(peak) as peak from old group by at)
insert into postdate.slo_count as s (at, grain, writer, delivered, late, again, again_late, again_later, peak)
select date_trunc('hour', at), 3600, 0, sum(delivered), sum(late), sum(again), sum(again_late), sum(again_later), max(peak)
  from minutes group by 1
on conflict (at, grain, writer) do update
   set delivered = s.delivered + excluded.delivered, late = s.late + excluded.late, again = s.again + excluded.again,
       again_late = s.again_late + excluded.again_late, again_later = s.again_later + excluded.again_later,
       peak = greatest(s.peak, excluded.peak)
