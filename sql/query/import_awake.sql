update postdate.import i set message = w.message, hash = sha256(i.body), properties = '', body = ''
  from unnest($1::uuid[], $2::uuid[]) w (id, message) where i.id = w.id
