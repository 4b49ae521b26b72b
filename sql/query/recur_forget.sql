-- What happened to schedules that were removed long ago; at most a thousand of them.
select postdate.recur_forget()
