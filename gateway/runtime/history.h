/* Detects that the database has lost commits: it was restored, or a standby that lagged was promoted
 * (docs/internals/store.md). A gateway remembers the latest point in the database's history that it has seen;
 * RabbitMQ stores one, too, for gateways that start later (amqp/topology/topology.h). Thread-safe. */
#ifndef POSTDATE_GATEWAY_RUNTIME_HISTORY_H
#define POSTDATE_GATEWAY_RUNTIME_HISTORY_H

#include "sql/pipeline/history.h"
#include <pthread.h>
#include <stdatomic.h>

struct history {
    pthread_mutex_t lock;              /* guards the next two */
    struct history_point point;        /* the latest known point; without lineage: none */
    int64_t lost_number;               /* of the last known loss of commits; -1: unknown */
    atomic_int_fast64_t look_until_ms; /* database time: messages from RabbitMQ that are due before this are
                                          looked up first; 0: none */
    atomic_bool known;                 /* this gateway has compared at least once */
};

void history_open(struct history *h);
/* Sets the point that RabbitMQ has (or none), at the start. */
void history_learn(struct history *h, const struct history_point *p);
/* Compares the database with the known point, and increments its number. 1: the database has lost commits
 * since this gateway's last comparison (or before its start, and no gateway has found that yet); logged, and
 * in *out. 0: it has not; -1: it did not answer. window_ms: handover.window. Any thread, with its own
 * session. */
int history_look(struct history *h, struct pg *pg, int64_t window_ms, struct history_report *out,
                 struct err *e);
/* Copies the known point to *out if it is newer than `number`; else false. */
bool history_newest(struct history *h, int64_t number, struct history_point *out);

#endif
