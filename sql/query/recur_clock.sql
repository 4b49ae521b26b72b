-- $1: ms for which none waits for its next attempt at most.
select said, busy from postdate.clock_back($1::bigint * interval '1 ms')
