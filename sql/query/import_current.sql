-- Whoever begins a run waits for the transaction that asks this, and finds what it has stored.
select 1 from postdate.import_run r where r.node = $1::text and r.run = $2::text for share
