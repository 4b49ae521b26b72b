/* The ids of what was claimed and delivered last: what is to get a proof when the database goes away
 * (relay_proof.c). Some of it is not settled yet, and of what is, a database that crashes forgets the last
 * moment, where rows are settled with asynchronous commits. Thread-safe. */
#ifndef POSTDATE_GATEWAY_PIPELINE_DELIVERED_RING_H
#define POSTDATE_GATEWAY_PIPELINE_DELIVERED_RING_H

#include "core/message/message_id.h"
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DELIVERED_RING_SIZE 32768u /* a second and more of a gateway that does nothing else */

struct delivered_ring {
    pthread_mutex_t lock;  /* guards everything below */
    uint64_t added, taken; /* so many were; the ring has the last of them */
    struct delivered_ring_item {
        struct message_id id;
        int64_t at_ms; /* monotonic: when its outcome was known */
    } items[DELIVERED_RING_SIZE];
};

void delivered_ring_open(struct delivered_ring *ring);
void delivered_ring_close(struct delivered_ring *ring);
/* The oldest one is forgotten for it. */
void delivered_ring_add(struct delivered_ring *ring, struct message_id id, int64_t now_ms);
/* What is known of the database. Times are monotonic. */
struct delivered_until {
    int64_t now_ms, settled_ms; /* when it took something for the last time */
    bool away;                  /* it is known to be; else it does not keep pace */
};
/* The ids of what was delivered and may not be in the database: at most max of them, the oldest first, each
 * only once. What is so old that it must be there is passed over for good. Returns how many. */
size_t delivered_ring_take(struct delivered_ring *ring, const struct delivered_until *until,
                           struct message_id *out, size_t max);

#endif
