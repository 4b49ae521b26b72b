/* What Postdate declares in RabbitMQ: exchange `postdate` -> quorum queue `postdate.intake` (expired and
 * over-delivered messages dead-letter to `postdate.intake.expired`, which is consumed too),
 * `postdate.delivery`, `postdate.rejected`, and the exchanges under [route]. Idempotent; safe from several
 * gateways at once. */
#ifndef POSTDATE_AMQP_TOPOLOGY_H
#define POSTDATE_AMQP_TOPOLOGY_H

#include "amqp/broker.h"

#define TOPOLOGY_CONTROL_QUEUE "postdate.control"
#define TOPOLOGY_REJECTED_QUEUE "postdate.rejected"
#define TOPOLOGY_RECEIPT_QUEUE "postdate.receipts"
#define TOPOLOGY_UNROUTED "postdate.unrouted" /* a fanout exchange, and a queue that is bound to it */
#define TOPOLOGY_UNROUTED_EARLY "postdate.unrouted.early" /* another queue that is bound to it */

struct topology {
    const char *intake_exchange;        /* fanout, durable */
    const char *intake_queue;           /* quorum, durable; dead-letters to the default exchange with key
                                           "<intake_queue>.expired" */
    const char *delivery_exchange;      /* topic, durable */
    const char *rejected_queue;         /* quorum, durable */
    const char *const *route_exchanges; /* fanout, durable, bound to intake_queue */
    size_t route_count;
};

struct topology_found {
    char expired_queue[300]; /* the name of the second intake queue */
    char older[800];         /* "'a', 'b'": queues that an older release declared, with fewer arguments */
};

/* Declares all of it. Queues that an older release declared are used as they are. */
int topology_declare(struct broker *b, const struct topology *t, struct topology_found *out, struct err *e);

/* Declares one of its queues. 1: it is an older release's, and stays as it is. By its name: intake_queue,
 * rejected_queue, "<intake_queue>.expired", or TOPOLOGY_CONTROL_QUEUE, which topology_declare leaves to the
 * thread that reads it: a gateway works without it. */
int topology_declare_queue(struct broker *b, const struct topology *t, const char *name, struct err *e);

/* TOPOLOGY_RECEIPT_QUEUE. One of its consumers gets all of it, the others wait for their turn
 * (https://www.rabbitmq.com/docs/consumers#single-active-consumer, RabbitMQ 3.8):
 * gateway/daemon/receipt_mark.h says why. A queue that was declared otherwise is used as it is. */
int topology_declare_receipts(struct broker *b, struct err *e);

/* What the broker waited with and found no way for goes to that exchange (transport.h) and is read by the
 * gateway. Two queues get it: a quorum queue, which is safe as soon as it has taken something, and a classic
 * one, which takes something as soon as a broker starts, while quorum queues have no leader yet. */
int topology_declare_unrouted(struct broker *b, struct err *e);

#endif
