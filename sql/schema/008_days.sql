-- Version 8: what is known of a day without reading it.

-- What keeps a settled day, beside what is delivered in time: by state, the last ones. What was delivered within an hour of its due time is in no
-- index: such rows are all older than their retention when the day's end is, and an hour.
create index message_kept on postdate.message (state, settled_at)
    where settled_at is not null and (state <> 'delivered' or settled_at - due > interval '1 hour');

-- How far ahead gateways have claimed what the broker is to wait with: nothing that a dead one owned is due later.
alter table postdate.meta add column claimed_until timestamptz;
