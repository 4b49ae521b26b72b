-- Findings: of the time zones of recurring schedules, how many; those that this session does not know, with how many schedules; those by whose rules, as it reads
-- them, next occurrences were not computed. A new session reads them anew.
with used as (
    select x.zone, count(*) as n, x.zone = 'UTC' or exists (select from pg_timezone_names z where z.name = x.zone) as known
      from postdate.recur x group by x.zone),
looked as (
    select u.zone, u.n, u.known, k.mark <> '' and case when u.known then k.mark <> postdate.zone_print(u.zone, k.from_at) end as stale
      from used u left join postdate.recur_zone k on k.zone = u.zone),
found as (
    select count(*) as n, left(string_agg(zone || ' (' || n || ')', ', ' order by n desc, zone) filter (where not known), 400) as unknown,
           left(string_agg(zone, ', ' order by n desc, zone) filter (where stale), 400) as stale
      from looked)
select 'fail', 'database.zones', 'PostgreSQL does not know time zones of recurring schedules (how many): ' || unknown,
       'install the package that has them on the database''s machine (Debian 13: tzdata-legacy), or set another zone: postdate recur set NAME --zone …'
  from found where unknown is not null
union all
select 'warn', 'database.zones', 'next occurrences of recurring schedules were computed by other rules than PostgreSQL has now: ' || stale,
       'restart the gateways: a session keeps the rules that it read first, and a new one computes them anew' from found where stale is not null
union all
select 'ok', 'database.zones', format('%s are used by recurring schedules, each as PostgreSQL knows it now', n), ''
  from found where unknown is null and stale is null
