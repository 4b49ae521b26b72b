/* Finds out whether RabbitMQ has started anew since it was asked last: a message that is not persistent lies
 * in a classic queue of this gateway's own. It outlives any connection and no start of the node. (A queue
 * that is not durable would do, but RabbitMQ 4.3 has none; a connection says nothing about the node's age.)
 * Also, whether exchanges that are not durable were gone after the start, by one that goes with the queue.
 * Used by one thread. */
#ifndef POSTDATE_GATEWAY_RESTART_MARK_H
#define POSTDATE_GATEWAY_RESTART_MARK_H

#include "amqp/broker.h"
#include "gateway/daemon/gateway.h"
#include <stdbool.h>

/* A starting broker lets go at once what fell due while it was away, also to quorum queues that have no
 * leader yet: those take nothing, and nobody hears of it. So long after it answers they all have one: sixty
 * had within 0.6 s, on two busy cores; but an election is written to disk, and disks stall. It costs little
 * to wait: what is let go meanwhile comes back (amqp/transport_exit.c) and is published at once. */
#define RESTART_ELECTIONS_MS 5000

struct restart_mark {
    char queue[64]; /* "": to be named; an exchange, which is not durable, is called the same */
    bool placed;
    bool swept; /* what is not durable was gone, too, when the mark was */
};

/* Places it, over a connection of its own: one that has published is not read from while the broker has an
 * alarm, and the caller's acknowledgements would wait. Errors as broker_open and broker_declare_queue. */
int restart_mark_place(struct restart_mark *m, const struct gateway *g, struct err *e);
/* Is it still there? 1 yes; 0 no: the broker started anew, or somebody removed it (place it again; m->swept
 * is set; b may be dead then, see broker_is_dead); -1: error. It must be asked for at least once an hour, or
 * it expires. */
int restart_mark_look(struct restart_mark *m, struct broker *b, struct err *e);
/* Removes it, best effort. */
void restart_mark_remove(struct restart_mark *m, struct broker *b);

#endif
