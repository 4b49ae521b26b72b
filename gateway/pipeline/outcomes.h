/* The queue from the publishers to the settler: messages whose outcome is known. Thread-safe. Bounded by the
 * budget of held messages. Owns what is in it. */
#ifndef POSTDATE_GATEWAY_PIPELINE_OUTCOMES_H
#define POSTDATE_GATEWAY_PIPELINE_OUTCOMES_H

#include "gateway/pipeline/held.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct outcomes {
    pthread_mutex_t lock;
    pthread_cond_t came; /* CLOCK_MONOTONIC */
    struct held *first, **last;
    atomic_int unsettled; /* delivered or handed, not written down, and not put aside */
};

void outcomes_open(struct outcomes *q);
void outcomes_close(struct outcomes *q); /* frees what is still in it */
void outcomes_put(struct outcomes *q, struct held *h);
/* So many are published and not settled that the publishers are to wait: a database that takes nothing for a
 * while and a gateway that dies then would make duplicates of all of them. */
bool outcomes_full(struct outcomes *q);
/* Takes the whole queue as a list, waiting at most wait_ms for the first; NULL when none came. */
struct held *outcomes_take_all(struct outcomes *q, int64_t wait_ms);
/* One that was taken has to wait for somebody's lock: the publishers don't wait for it. */
void outcomes_put_aside(struct outcomes *q, struct held *h);
/* Frees one that was taken: it is written down, or left to others. */
void outcomes_free(struct outcomes *q, struct held *h);

#endif
