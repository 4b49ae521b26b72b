/* The queues before and behind the publishers. Thread-safe. Each owns its messages. */
#ifndef POSTDATE_GATEWAY_DELIVER_QUEUES_H
#define POSTDATE_GATEWAY_DELIVER_QUEUES_H

#include "core/base/due_heap.h"
#include "gateway/deliver/flight_window.h"
#include "gateway/deliver/inflight.h"
#include "gateway/runtime/notifier.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* Messages that wait until they are due, for one publisher: other threads push, the publisher takes. */
struct due_queue {
    pthread_mutex_t lock;     /* guards the heaps */
    struct due_heap heap[2];  /* [0]: messages that need a claim to be published; [1]: relayed messages */
    struct notifier notifier; /* notified when a message was pushed that is due before all others; the
                                 supervisor opens it */
};

void due_queue_open(struct due_queue *q);
void due_queue_close(struct due_queue *q);                   /* frees what is still in it */
int due_queue_push(struct due_queue *q, struct inflight *h); /* -1: out of memory, h stays the caller's */
/* Which of the heaps. */
enum due_which { DUE_CLAIMED = 1, DUE_RELAYED = 2, DUE_ALL = DUE_CLAIMED | DUE_RELAYED };
/* The first message in these heaps that is due at or before now_ms, or NULL. */
struct inflight *due_queue_take_due(struct due_queue *q, int64_t now_ms, enum due_which which);
/* The database's clock was set back by by_ms: moves the times of retries forward by that, but not before the
 * messages are due. */
void due_queue_set_back(struct due_queue *q, int64_t by_ms);
size_t due_queue_count(struct due_queue *q);
/* When the first of these is due; INT64_MAX when there is none. */
int64_t due_queue_next_ms(struct due_queue *q, enum due_which which);

/* From the publishers to the settler: messages whose outcome is known. Bounded by the budget of messages in
 * flight. */
struct result_queue {
    pthread_mutex_t lock;
    pthread_cond_t came; /* CLOCK_MONOTONIC */
    struct inflight *first, **last;
    atomic_int unsettled; /* number of claimed messages that are delivered and not yet recorded, without
                             deferred ones */
    atomic_int *relayed;  /* the same for relayed ones; counted by exit_table.h */
    atomic_int room;      /* the limit of `unsettled` and `relayed` together: the size of the window */
    atomic_bool behind;   /* settling relayed messages takes long */
    atomic_llong took_ms; /* how long settling the last claimed one took */
    struct flight_window window;
    uint64_t numbered;
};

/* relayed: the counter of relayed messages that are published and not settled. */
void result_queue_open(struct result_queue *q, atomic_int *relayed);
void result_queue_close(struct result_queue *q); /* frees what is still in it */
void result_queue_put(struct result_queue *q, struct inflight *h);
/* Must publishers wait, because too many messages are published and not settled? If the gateway died while
 * the database does not accept writes, all of them would be delivered twice. The limit is as small as keeps
 * the database busy, 256 at most: flight_window.h. */
bool result_queue_full(struct result_queue *q);
/* Have relayed messages waited for the settler for too long? */
bool result_queue_behind(const struct result_queue *q);
/* How long settling the last claimed message took, in ms. */
int64_t result_queue_took_ms(const struct result_queue *q);
/* The number of unsettled messages, claimed and relayed. */
int result_queue_unsettled(const struct result_queue *q);
/* Waits up to ms for more results, but not while the publishers wait for the settler. */
void result_queue_gather(struct result_queue *q, int64_t ms);
/* Takes the whole queue as a list, waiting at most wait_ms for the first; NULL when none came. */
struct inflight *result_queue_take_all(struct result_queue *q, int64_t wait_ms);
/* A taken message has to wait for a lock: no longer counts it as unsettled. */
void result_queue_defer(struct result_queue *q, struct inflight *h);
/* Frees a taken message: it is recorded, or left to another gateway. */
void result_queue_free(struct result_queue *q, struct inflight *h);

#endif
