/* What RabbitMQ needs to deliver by itself what it waited with (handover.last_hop = broker;
 * core/message/publish_headers.h).
 *
 * Dead-lettering from the exit queues is at-least-once: what a target queue refuses or cannot take stays and
 * is tried again every three minutes, and 32 such messages hold up all others (rabbit_fifo_dlx_worker, 3.10
 * to 4.3). Of everything that is dead-lettered a copy goes to the receipts. Should these and the delivery
 * exchange both be gone, it comes to the gateways' own exit queue by an alternate exchange. What finds its
 * delivery exchange, and no queue there, is dropped. */
#ifndef POSTDATE_AMQP_TOPOLOGY_LAST_HOP_H
#define POSTDATE_AMQP_TOPOLOGY_LAST_HOP_H

#include "amqp/connection/broker.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/message/publish_headers.h"

#define LAST_HOP_PING_HEADER "x-postdate-ping" /* what has this comes to the receipts, and nowhere else */

/* The arguments of a binding for what RabbitMQ delivers itself. */
#define LAST_HOP_BY_BROKER_ARGS 2
extern const struct broker_arg last_hop_by_broker[LAST_HOP_BY_BROKER_ARGS];

/* Exchanges, queues and bindings but those of delivery exchanges. Idempotent. Errors as broker_declare_*. */
int last_hop_declare(struct broker *b, struct err *e);
/* What is for this delivery exchange goes there. ERR_NOT_FOUND: there is no such exchange. */
int last_hop_bind_exchange(struct broker *b, struct bytes exchange, struct err *e);

#endif
