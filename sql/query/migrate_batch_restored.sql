select postdate.batch_restored()
