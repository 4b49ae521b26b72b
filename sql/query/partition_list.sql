-- $1 its name; null: all. How it is attached: as enum attachment. Of a table's partitions one at a time may be on its way out: those come first.
select name, case when attached then 0 when detach_pending then 1 else 2 end, parent, is_month_table from postdate.partition where $1::text is null or name = $1::text order by detach_pending desc, name
