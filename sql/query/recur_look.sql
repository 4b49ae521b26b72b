-- $1: at most so many. One row for each schedule that was seen to, in one short transaction.
select postdate.recur_look($1::int)
