-- A range that was put back becomes the claim of instance $1; $2, $3 the days that are locked; $4: so many ms before its time.
-- Its name, the first and last id that may be left of it, and up to where all is delivered but what is pending.
update postdate.batch b
   set owner = i.id, again_at = null, claimed_at = greatest(date_trunc('milliseconds', clock_timestamp()), b.claimed_at + interval '1 ms')
  from postdate.instance i
 where i.id = $1::int
   and b.id = (select x.id from postdate.batch x
                where x.again_at <= clock_timestamp() + $4::int * interval '1 ms'
                  and not exists (select from unnest($2::timestamptz[], $3::timestamptz[]) d (begins, ends)
                                   where d.begins <= postdate.id_due(x.to_id) and d.ends > postdate.id_due(least(x.pending[1], coalesce(x.upto, x.from_id))))
                order by x.again_at limit 1 for update skip locked)
returning b.id, b.claimed_at, least(b.pending[1], coalesce(b.upto, b.from_id)), b.to_id, coalesce(b.upto, b.from_id)
