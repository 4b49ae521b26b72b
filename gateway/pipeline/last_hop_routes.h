/* Which delivery exchanges RabbitMQ's last hop leads to (amqp/topology/transport.h).
 *
 * A delivery exchange is bound when the first message for it is handed over, and again now and then: somebody
 * may delete it, and its binding goes with it. Whoever believes a receipt asks first, for a receipt comes
 * from a binding of its own. On a connection for this alone: a missing exchange closes the channel, and
 * RabbitMQ may not answer for seconds. Owned by one thread. */
#ifndef POSTDATE_GATEWAY_PIPELINE_LAST_HOP_ROUTES_H
#define POSTDATE_GATEWAY_PIPELINE_LAST_HOP_ROUTES_H

#include "amqp/connection/broker.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "gateway/pipeline/handover.h"
#include <stdbool.h>

#define LAST_HOP_ROUTES 512 /* that are remembered */

struct last_hop_route {
    uint8_t name[255];
    uint8_t len;
    bool leads;
    int64_t asked_ms; /* monotonic; 0: never */
    int epoch;        /* of then, see struct handover */
};

struct last_hop_routes {
    struct runtime *runtime;
    struct handover *handover;
    bool tells;            /* others that a delivery exchange is gone, which they may believe to know */
    struct broker *broker; /* NULL: not connected */
    struct last_hop_route *entries;
    int count, victim;
    int64_t retry_ms; /* monotonic: before that RabbitMQ is not asked again; 0: it answers */
};

/* 1: it leads to that exchange, as of fresh_ms ago at most; 0: it can't (there is no such exchange, or not
 * for this login); -1: RabbitMQ did not say. */
int last_hop_routes_lead_to(struct last_hop_routes *routes, struct bytes exchange, int64_t fresh_ms,
                            struct err *e);
/* Did RabbitMQ not answer the last question? */
bool last_hop_routes_are_away(const struct last_hop_routes *routes);
/* Asks again for the one that was asked for longest ago, if that is longer ago than age_ms. */
int last_hop_routes_refresh(struct last_hop_routes *routes, int64_t age_ms, struct err *e);
void last_hop_routes_close(struct last_hop_routes *routes);

#endif
