-- $1: what was delivered, whatever the database knows of it. Returns how many it had forgotten.
select postdate.history_delivered($1::uuid[])
