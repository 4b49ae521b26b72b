-- One row, if there may be more.
select where postdate.batch_merge(500)
