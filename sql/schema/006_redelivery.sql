-- Version 6: what RabbitMQ had delivered before when it was stored (sql/pipeline/store_dedupe.c). The sequence counts batches in which there was such a message;
-- redelivery is that number, in notes of nothing else.
create sequence postdate.redelivery;
alter table postdate.intake_batch add column redelivery bigint;
