-- From exit queue $1 on to $2, unless another gateway has done that already.
update postdate.meta set last_hop_queue = $2::int where last_hop_queue = $1::int
