/* Claimed messages that wait for their millisecond in front of one publisher. Thread-safe: the claimer and
 * the other lane push, the lane's publisher takes. Owns what is in it. */
#ifndef POSTDATE_GATEWAY_PIPELINE_LANE_H
#define POSTDATE_GATEWAY_PIPELINE_LANE_H

#include "core/base/due_heap.h"
#include "gateway/pipeline/held.h"
#include "gateway/runtime/wake.h"
#include <pthread.h>

struct lane {
    pthread_mutex_t lock; /* guards heap */
    struct due_heap heap;
    struct wake wake; /* rings when something sooner than everything else came */
};

int lane_open(struct lane *l, struct err *e);
void lane_close(struct lane *l);               /* frees what is still in it */
int lane_push(struct lane *l, struct held *h); /* -1: out of memory, h stays the caller's */
/* The first message due at or before now_ms, or NULL. */
struct held *lane_take_due(struct lane *l, int64_t now_ms);
size_t lane_count(struct lane *l);
/* When the first message is due; INT64_MAX when there is none. */
int64_t lane_next_ms(struct lane *l);

#endif
