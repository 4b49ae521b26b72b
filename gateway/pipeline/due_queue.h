/* Claimed messages that wait for their millisecond in front of one publisher. Thread-safe: the claimer and
 * the other queue push, the queue's publisher takes. Owns what is in it. */
#ifndef POSTDATE_GATEWAY_PIPELINE_DUE_QUEUE_H
#define POSTDATE_GATEWAY_PIPELINE_DUE_QUEUE_H

#include "core/base/due_heap.h"
#include "gateway/pipeline/inflight.h"
#include "gateway/runtime/notifier.h"
#include <pthread.h>

struct due_queue {
    pthread_mutex_t lock; /* guards heap, claimed */
    struct due_heap heap;
    size_t claimed;           /* so many in it were not relayed */
    struct notifier notifier; /* rings when something sooner than everything else came */
};

int due_queue_open(struct due_queue *q, struct err *e);
void due_queue_close(struct due_queue *q);                   /* frees what is still in it */
int due_queue_push(struct due_queue *q, struct inflight *h); /* -1: out of memory, h stays the caller's */
/* The first message due at or before now_ms, or NULL. */
struct inflight *due_queue_take_due(struct due_queue *q, int64_t now_ms);
size_t due_queue_count(struct due_queue *q);
size_t due_queue_claimed(struct due_queue *q); /* of these, what needs a claim to be published */
/* When the first message is due; INT64_MAX when there is none. */
int64_t due_queue_next_ms(struct due_queue *q);

#endif
