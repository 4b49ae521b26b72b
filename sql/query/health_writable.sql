-- As enum health_writable.
select case when pg_is_in_recovery() then 1 when current_setting('transaction_read_only')::bool then 2 else 0 end
