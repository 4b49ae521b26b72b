/* What the broker waited with and found no way for: somebody deleted the delivery exchange, or the binding to
 * it; or the broker let it go as it started (amqp/transport_exit.c). Such messages come back by the queues
 * TOPOLOGY_UNROUTED and TOPOLOGY_UNROUTED_EARLY, mostly by both, and a receipt of each as well, before or
 * after; the gateway publishes them itself, and the receipt settles nothing
 * (sql/query/receipts_unrouted.sql). Owned and used by the receipts' thread. */
#ifndef POSTDATE_GATEWAY_UNROUTED_H
#define POSTDATE_GATEWAY_UNROUTED_H

#include "gateway/daemon/gateway.h"
#include "sql/pg.h"

struct unrouted {
    struct gateway *gateway;
    size_t count;     /* not said yet */
    int64_t said_ms;  /* monotonic; 0: never */
    uint8_t name[64]; /* the exchange of the last one, as much of it as is shown */
    size_t name_len;
};

/* One came back; properties are its own. What was known of its exchange is known no more. */
void unrouted_heard(struct unrouted *u, struct bytes properties);
/* Writes down that those, at most 2,000, came back. locked[i]: try again later. -1: nothing is written. */
int unrouted_settle(struct unrouted *u, struct pg *pg, const struct message_id *ids, size_t count,
                    bool *locked, struct err *e);
/* Says what came back, once a minute at most. */
void unrouted_tell(struct unrouted *u);

#endif
