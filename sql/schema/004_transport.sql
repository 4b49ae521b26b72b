-- Version 4, too: how the broker waits for each gateway: timer, plugin or ttl.
alter table postdate.instance add column transport text;
