-- $1: claims are due up to then. A day at a time, so that it is seldom written.
update postdate.meta m set claimed_until = greatest(m.claimed_until, date_trunc('day', $1::timestamptz) + interval '1 day') where one
returning claimed_until
