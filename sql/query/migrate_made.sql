-- Of what made the version that both this program, which knows $1, and the schema have. Whichever columns its table has: those are different, too.
select (m.row ->> 'version')::int, coalesce(m.row -> 'fingerprint' ->> m.at, ''), coalesce(m.row -> 'made_by' ->> m.at, '')
  from (select r.row, least((r.row ->> 'version')::int, $1::int) - 1 as at
          from (select to_jsonb(m) as row from postdate.meta m) r) m
