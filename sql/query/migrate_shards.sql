-- What leads where in another RabbitMQ is not known: gateways move all sources anew (amqp/topology/topology_shards.h).
update postdate.shards set moving = true where done is not null
