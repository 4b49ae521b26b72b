/* The queue from the publishers to the settler: messages whose outcome is known. Thread-safe. Bounded by the
 * budget of held messages. Owns what is in it. */
#ifndef POSTDATE_GATEWAY_OUTCOMES_H
#define POSTDATE_GATEWAY_OUTCOMES_H

#include "gateway/daemon/held.h"
#include <pthread.h>
#include <stdint.h>

struct outcomes {
    pthread_mutex_t lock;
    pthread_cond_t came; /* CLOCK_MONOTONIC */
    struct held *first, **last;
};

void outcomes_open(struct outcomes *q);
void outcomes_close(struct outcomes *q); /* frees what is still in it */
void outcomes_put(struct outcomes *q, struct held *h);
/* Takes the whole queue as a list, waiting at most wait_ms for the first; NULL when none came. */
struct held *outcomes_take_all(struct outcomes *q, int64_t wait_ms);

#endif
