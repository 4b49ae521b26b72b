/* Which delivery exchanges RabbitMQ's last hop leads to (amqp/topology/transport.h).
 *
 * A delivery exchange is bound when the first message for it is handed over, and again now and then: somebody
 * may delete it, and its binding goes with it. Whoever believes a receipt asks first, for a receipt comes
 * from a binding of its own. On a connection for this alone: a missing exchange closes the channel, and
 * RabbitMQ may not answer for seconds. One thread asks. Another one, which must not wait, may use the same
 * table: what it does not find there is asked for it (last_hop_routes_find_out). */
#ifndef POSTDATE_GATEWAY_PIPELINE_LAST_HOP_ROUTES_H
#define POSTDATE_GATEWAY_PIPELINE_LAST_HOP_ROUTES_H

#include "amqp/connection/broker.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "gateway/pipeline/handover.h"
#include <stdatomic.h>
#include <stdbool.h>

#define LAST_HOP_ROUTES 512 /* that are remembered */

struct last_hop_route {
    uint8_t name[255];
    uint8_t len;
    bool leads;
    bool wanted;      /* somebody waits for the answer */
    int64_t asked_ms; /* monotonic; 0: never */
    int epoch;        /* of then, see struct handover */
};

enum last_hop_lead { LEADS_NOWHERE, LEADS_THERE, LEADS_UNSAID, LEADS_UNKNOWN };

struct last_hop_routes {
    struct runtime *runtime;
    struct handover *handover;
    struct broker *broker; /* NULL: not connected */
    struct last_hop_route *entries;
    int count, victim;
    atomic_int_fast64_t retry_ms; /* monotonic: before that RabbitMQ is not asked again; 0: it answers */
};

/* Before its first use. */
void last_hop_routes_open(struct last_hop_routes *routes, struct runtime *rt, struct handover *handover);

/* 1: it leads to that exchange, as of fresh_ms ago at most; 0: it can't (there is no such exchange, or not
 * for this login); -1: RabbitMQ did not say. */
int last_hop_routes_lead_to(struct last_hop_routes *routes, struct bytes exchange, int64_t fresh_ms,
                            struct err *e);
/* Did RabbitMQ not answer the last question? */
bool last_hop_routes_are_away(const struct last_hop_routes *routes);
/* Asks again for the one that was asked for longest ago, if that is longer ago than age_ms. */
int last_hop_routes_refresh(struct last_hop_routes *routes, int64_t age_ms, struct err *e);
/* What is known of it, as of fresh_ms ago at most; LEADS_UNKNOWN: it is asked for now, LEADS_UNSAID: in vain.
 * For a thread that must not wait. *asks: the other one has something to do. */
enum last_hop_lead last_hop_routes_know(struct last_hop_routes *routes, struct bytes exchange,
                                        int64_t fresh_ms, bool *asks);
/* Asks RabbitMQ what last_hop_routes_know did not know. True: something is known now. */
bool last_hop_routes_find_out(struct last_hop_routes *routes);
void last_hop_routes_close(struct last_hop_routes *routes);

#endif
