/* The relay takes from the exit queue what RabbitMQ waited with, and delivers it as what the gateway held.
 *
 *   postdate.exit ──▶ relay.c ──▶ fast queue ─▶ publisher ──▶ settler ──▶ relay.c: acknowledged
 *                        │                                       ▲
 *                        └── looked up first ──▶ relay_lookup.c ─┘ (as a claimed message)
 *   postdate.receipts ──▶ relay_receipts.c ──▶ settler: what RabbitMQ delivered itself
 *
 * RabbitMQ lets go `lead` before due, so that a message waits for its millisecond here. It is acknowledged
 * once its outcome is in the database; publishing needs no database, so deliveries go on while Postgres is
 * away. relay_book.h says what is looked up before it is published. */
#ifndef POSTDATE_GATEWAY_RELAY_RELAY_H
#define POSTDATE_GATEWAY_RELAY_RELAY_H

#include "core/message/last_hop.h"
#include "gateway/pipeline/inflight.h"
#include "gateway/relay/relay_book.h"
#include "gateway/runtime/notifier.h"
#include <stdatomic.h>
#include <stdint.h>

#define RELAY_PING_QUEUE_HEADER                                                                              \
    "x-postdate-ping-queue"  /* by which exit queue of RabbitMQ's last hop it goes */
#define RELAY_ASIDE_MS 15000 /* so long a gateway without a database goes on where others have it */
#define RELAY_BYTES_MAX (16u * 1024 * 1024) /* of content that waits for its millisecond or its confirm */

/* What relay, look-up, publishers and settler share. */
struct relay {
    struct relay_book book;
    struct inflight_budget budget; /* of relayed messages */
    struct notifier notifier, lookup_notifier;
    atomic_int consumers;      /* of this gateway */
    atomic_bool forgotten;     /* nothing comes to this gateway's consumers, or to anybody's */
    atomic_int lost_consumers; /* of its lost connections: RabbitMQ goes on counting those of a dead node */
    atomic_int_fast64_t noted_ms;    /* monotonic: when this gateway last told the database what it took */
    atomic_int_fast64_t heard_ms;    /* boottime: when this gateway read last what RabbitMQ had to say */
    atomic_int_fast64_t in_touch_ms; /* RabbitMQ leaves it what it has taken for so long without a word */
    atomic_int_fast64_t ping_ms;     /* when the latest ping that came was sent; database time; 0: none */
    atomic_int last_hop_queue;       /* from which RabbitMQ delivers itself: 1, 2; 0: never; -1: unknown */
    atomic_int_fast64_t last_hop_ping_ms[LAST_HOP_QUEUES]; /* as ping_ms, of what came by its last hop */
    atomic_int
        routes_epoch; /* counts how often a delivery exchange was found to be gone (last_hop_routes.h) */
    atomic_int_fast64_t read_ms;          /* database time: when all that had come was read */
    atomic_int_fast64_t rescue_before_ms; /* what was due before and did not come out is lost; 0: unknown */
    atomic_int_fast64_t rescue_known_ms;  /* when that was found out; monotonic */
};

struct gateway;

int relay_open(struct relay *r, int64_t grace_ms, struct err *e);
void relay_close(struct relay *r);

/* For publishers: may h, a relayed message, be published now? False: it has been dealt with. */
bool relay_may_publish(struct gateway *g, struct inflight *h);

void *relay_thread(void *gateway);
void *relay_lookup_thread(void *gateway);

#endif
