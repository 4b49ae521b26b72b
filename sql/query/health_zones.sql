-- The time zones of recurring schedules: how many; those that this session does not know, with how many schedules; those by whose rules, as it reads
-- them, next occurrences were not computed. A new session reads them anew.
with used as (
    select x.zone, count(*) as n, x.zone = 'UTC' or exists (select from pg_timezone_names z where z.name = x.zone) as known
      from postdate.recur x group by x.zone),
looked as (
    select u.zone, u.n, u.known, k.mark <> '' and case when u.known then k.mark <> postdate.zone_print(u.zone, k.from_at) end as stale
      from used u left join postdate.recur_zone k on k.zone = u.zone)
select count(*), left(coalesce(string_agg(zone || ' (' || n || ')', ', ' order by n desc, zone) filter (where not known), ''), 400),
       left(coalesce(string_agg(zone, ', ' order by n desc, zone) filter (where stale), ''), 400)
  from looked
