select i.id, i.source, (select row_to_json(l)::text from (select i.id as import, i.message, i.node, to_char(i.due at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as due,
                                                                  i.source as from, i.exchange, encode(i.hash, 'hex') as sha256) l)
  from postdate.import i where i.node = $1::text and i.message is not null and i.id > $2::uuid order by i.id limit $3::int
