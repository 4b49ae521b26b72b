/* What RabbitMQ waits with: keeps the transport's exchanges and queues declared, and the way out of them
 * bound.
 *
 * Somebody may delete a queue or an exchange at any time, or the broker may come back empty. What is bound to
 * an exchange that is made again has to be bound again, also for messages that were handed over long ago:
 * they would leave the waiting room with a receipt, but for nowhere. So all is declared and bound again with
 * every new connection, when something got lost, and each minute; and the receipt queue last: a receipt comes
 * only where the way is bound.
 *
 * Owned and used by the hander. */
#ifndef POSTDATE_GATEWAY_BINDINGS_H
#define POSTDATE_GATEWAY_BINDINGS_H

#include "gateway/daemon/gateway.h"

#define BINDINGS_MAX 512 /* delivery exchanges that are remembered */

enum target_verdict {
    TARGET_GOOD,  /* its messages find their way */
    TARGET_BAD,   /* it can't be bound: missing, not permitted, the default exchange */
    TARGET_LATER, /* not known: RabbitMQ is away, or this look has taken its time already */
};

struct target_entry {
    uint8_t name[255];
    size_t len;
    enum target_verdict verdict;
    int64_t until_ms; /* monotonic */
};

struct bindings {
    struct gateway *gateway;
    struct broker *broker; /* NULL between looks, except while closed_ms counts */
    struct target_entry targets[BINDINGS_MAX];
    size_t target_count, next_victim;
    int epoch;         /* gateway.waiting_room when all was declared */
    bool done;         /* all was declared and bound, as far as we know */
    bool warned;       /* that it can't be */
    bool away;         /* RabbitMQ went away in the middle of a refresh */
    int64_t tried_ms;  /* monotonic; 0: never */
    int64_t closed_ms; /* monotonic; since when broker finds the way closed (transport.h); 0: it does not */
    int64_t look_until_ms; /* monotonic: no new binding after this */
};

/* Declares and binds what is due to be. pg tells where the messages go that the broker holds; db_now_ms is
 * the database's time. 1: all is there; 0: not now, hand nothing over; -1: the database failed. May block as
 * long as RabbitMQ's answers do. */
int bindings_refresh(struct bindings *b, struct pg *pg, int64_t db_now_ms, struct err *e);

/* Can messages for this delivery exchange find their way? Binds it if need be. Call bindings_end_look after
 * some. */
enum target_verdict bindings_reach(struct bindings *b, struct bytes exchange);
void bindings_end_look(struct bindings *b);
void bindings_close(struct bindings *b);

#endif
