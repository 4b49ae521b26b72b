-- Version 22: which session is at the work of many transactions that an Idempotency-Key names. It was an advisory lock, which any login may take.
alter table postdate.idempotency
    add column holder integer,           -- its number (pg_backend_pid); null: nobody is, or one transaction does it all
    add column holder_since timestamptz; -- when that session began, or, where that is hidden, when it took this
