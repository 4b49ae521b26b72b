/* What RabbitMQ has for messages that consumers refused: their queues dead-letter to the internal exchange
 * postdate.retry, which leads to the queue of that name; from the exchange postdate.return each goes back to
 * exactly one queue, which its header x-postdate-queue names. */
#ifndef POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_RETRY_H
#define POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_RETRY_H

#include "amqp/connection/broker.h"

/* Idempotent. */
int topology_declare_retry(struct broker *b, struct err *e);

/* Lets messages for that queue go back to it; declares the exchange, too. ERR_NOT_FOUND: there is no such
 * queue; ERR_PERMISSION: its owner does not let us, or it is another connection's own (the connection is dead
 * then). */
int topology_bind_return(struct broker *b, struct bytes queue, struct err *e);

#endif
