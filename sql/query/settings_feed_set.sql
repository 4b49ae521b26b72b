update postdate.settings set cell_exchange = $1::text, cell_weight = $2::integer
 where (cell_exchange, cell_weight::integer) is distinct from ($1::text, $2::integer)
