-- The clock in µs since 1970, and how far ahead there are days for messages.
select (extract(epoch from clock_timestamp()) * 1000000)::int8, max_delay_ms from postdate.settings
