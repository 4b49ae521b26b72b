-- How it is attached: as enum attachment.
select name, case when attached then 0 when detach_pending then 1 else 2 end, parent, is_month_table from postdate.partition order by name
