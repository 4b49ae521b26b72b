-- When its clock was set back last; the epoch: never.
select coalesce(back_at, 'epoch') from postdate.history
