/* Publishes a lane's messages on their millisecond and learns what became of them.
 *
 * Two publishers run: the fast one keeps many publishes in flight; the careful one a single one, so that a
 * channel closed by the broker has one culprit. See exchange_book.h for which messages go where. */
#ifndef POSTDATE_GATEWAY_PUBLISHER_H
#define POSTDATE_GATEWAY_PUBLISHER_H

#include "amqp/broker.h"
#include "core/arena.h"
#include "core/buf.h"
#include "core/flight.h"
#include "gateway/daemon/confirms.h"
#include "gateway/daemon/gateway.h"

/* A target that never confirms (a queue without its majority) must not fill the window for ever. */
#define PUBLISHER_CONFIRM_MS 30000

struct publisher {
    struct gateway *gateway;
    struct lane *lane;
    const char *name; /* as the broker shows it */
    bool careful;
    const struct transport
        *transport;       /* the hand-over publisher: publishes at once, the broker waits; else NULL */
    struct flight flight; /* how many may be unconfirmed */
    int stalled;          /* of these, for longer than STALLED_MS, when that was last counted */
    struct broker *broker;
    pthread_mutex_t broker_lock; /* guards broker against the watchdog only */
    atomic_int_fast64_t
        busy_since_ms; /* monotonic; a call that may block for ever is going on since; 0: none */
    bool blocked;
    bool refused; /* the hand-over publisher: the broker closed the channel over a publish, and took none
                     since */
    struct confirms confirms;
    struct arena arena;
    struct buf properties;
};

enum publisher_role { PUBLISHER_FAST, PUBLISHER_CAREFUL, PUBLISHER_HANDOVER };
int publisher_open(struct publisher *p, struct gateway *g, enum publisher_role role);
void publisher_close(struct publisher *p);
void *publisher_thread(void *publisher);

/* For the watchdog: shuts the socket of a publisher that is stuck in one call for longer than limit_ms. True
 * if it did. */
bool publisher_unstick(struct publisher *p, int64_t limit_ms);

/* handover.c: the hand-over publisher's part. */
/* What could not be handed over in time is the gateway's to deliver. */
void handover_put_back_near(struct publisher *p);
/* Fills p->properties and the exchange. 1: publish it; 0: it has been dealt with. */
int handover_compose(struct publisher *p, struct held *h, struct bytes *exchange, struct err *e);
void handover_acked(struct publisher *p, struct held *h);
void handover_refused(struct publisher *p, struct held *h); /* nack */
/* The connection is gone: all that is in flight. refusal: why the broker closed the channel over a publish;
 * NULL: it did not. */
void handover_lost(struct publisher *p, const struct err *refusal);

/* publish_outcome.c: what the broker said. */
void publisher_on_event(struct publisher *p, const struct broker_event *ev);
/* The connection is gone: everything in flight is in doubt; e tells whether a publish was to blame. */
void publisher_on_lost(struct publisher *p, const struct err *e);
/* The message was certainly not delivered: try again later, or fail. */
void publisher_refuse(struct publisher *p, struct held *h, const char *reason);

#endif
