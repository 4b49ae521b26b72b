-- A schema serves the programs of its own version $1 and of the one before. $2 the fingerprint of its files, $3 the program that runs them
update postdate.meta
   set version = $1::int, oldest_gateway = $1::int - 1, fingerprint[$1::int] = $2::text, made_by[$1::int] = $3::text
