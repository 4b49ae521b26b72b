-- Next occurrences in zones whose rules have changed.
select postdate.recur_zones()
