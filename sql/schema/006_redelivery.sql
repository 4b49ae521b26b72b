-- Version 6: how often a batch was stored with messages that RabbitMQ had delivered before (sql/accept_dedupe.c). Counts only; survives nothing that matters.
create sequence postdate.redelivery;
