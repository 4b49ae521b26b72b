-- $1: delivered messages. Returns how many deliveries the database had lost.
select postdate.history_delivered($1::uuid[])
