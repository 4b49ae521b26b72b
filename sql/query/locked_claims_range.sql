-- Now, and the first instant of the oldest partition; null: there is none.
select clock_timestamp(), postdate.partition_oldest()
