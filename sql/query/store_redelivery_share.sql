-- Held until the end of the transaction, as the other one is: any number of batches beside each other, but none beside one with redeliveries.
select set_config('lock_timeout', '0', true), pg_advisory_xact_lock_shared(1886352244, 0)
