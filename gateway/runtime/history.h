/* Whether the database has gone back: it was restored, or a standby that lagged was promoted
 * (docs/internals/store.md). A gateway keeps in mind the latest point in the database's history that it has
 * seen; RabbitMQ keeps one, too, for gateways that start later (amqp/topology/topology.h).
 * Thread-safe. */
#ifndef POSTDATE_GATEWAY_RUNTIME_HISTORY_H
#define POSTDATE_GATEWAY_RUNTIME_HISTORY_H

#include "sql/pipeline/history.h"
#include <pthread.h>
#include <stdatomic.h>

struct history {
    pthread_mutex_t lock;       /* guards the next two */
    struct history_point point; /* the latest that is known; no lineage: none */
    int64_t lost_number; /* of the last time at which it had gone back, as far as is known; -1: nothing is */
    atomic_int_fast64_t look_until_ms; /* database time: what comes out of RabbitMQ and is due before this is
                                          looked up first; 0: nothing is */
    atomic_bool known;                 /* this gateway has compared once */
};

void history_open(struct history *h);
/* RabbitMQ knew that point, or none. At the start. */
void history_learn(struct history *h, const struct history_point *p);
/* Compares the database with what is known, and raises its number. 1: it has gone back since this gateway
 * compared last (or before it started, and nobody has found that yet), which is logged and in *out; 0: it has
 * not; -1: it did not answer. window_ms: handover.window. Any thread, with its own session. */
int history_look(struct history *h, struct pg *pg, int64_t window_ms, struct history_report *out,
                 struct err *e);
/* Is there a point newer than `number`? */
bool history_newest(struct history *h, int64_t number, struct history_point *out);

#endif
