/* The delivery exchanges that are bound to RabbitMQ's last hop (amqp/topology/transport.h).
 *
 * A delivery exchange is bound when the first message for it is handed over, and again now and then, because
 * a client may delete it together with its binding. Before a receipt is trusted, the binding is checked,
 * because receipts come from a different binding. On its own connection: a missing exchange closes the
 * channel, and RabbitMQ may not answer for seconds. Owned by one thread. */
#ifndef POSTDATE_GATEWAY_DELIVER_LAST_HOP_ROUTES_H
#define POSTDATE_GATEWAY_DELIVER_LAST_HOP_ROUTES_H

#include "amqp/connection/broker.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "gateway/deliver/handover.h"
#include <stdbool.h>

#define LAST_HOP_ROUTES 512 /* the most entries */

struct last_hop_route {
    uint8_t name[255];
    uint8_t len;
    bool leads;
    int64_t asked_ms; /* monotonic; 0: never */
    int epoch;        /* handover.routes_epoch at that time */
};

struct last_hop_routes {
    struct runtime *runtime;
    struct handover *handover;
    bool tells; /* notify the other threads, whose entries may be outdated, that a delivery exchange is
                   missing */
    struct broker *broker; /* NULL: not connected */
    struct last_hop_route *entries;
    int count, victim;
    int64_t retry_ms; /* monotonic: RabbitMQ is not queried before; 0: it answers */
};

/* 1: the exchange is bound, checked at most fresh_ms ago; 0: it cannot be (it is missing, or this login has
 * no right); -1: RabbitMQ did not answer. */
int last_hop_routes_lead_to(struct last_hop_routes *routes, struct bytes exchange, int64_t fresh_ms,
                            struct err *e);
/* Did RabbitMQ not answer the last query? */
bool last_hop_routes_are_away(const struct last_hop_routes *routes);
/* Checks the entry with the oldest check again, if that is older than age_ms. */
int last_hop_routes_refresh(struct last_hop_routes *routes, int64_t age_ms, struct err *e);
void last_hop_routes_close(struct last_hop_routes *routes);

#endif
