-- Version 7: what waits for another attempt. All others that wait are due at `next_at`, whose index thus tells where a list of what is scheduled
-- begins; these few lie before that (sql/operate/list.c).
create index message_postponed on postdate.message (id)
    where state = 'scheduled' and owner is null and settled_at is null and next_at <> due;
