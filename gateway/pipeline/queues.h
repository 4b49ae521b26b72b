/* The queues before and behind the publishers. Thread-safe. Each owns what is in it. */
#ifndef POSTDATE_GATEWAY_PIPELINE_QUEUES_H
#define POSTDATE_GATEWAY_PIPELINE_QUEUES_H

#include "core/base/due_heap.h"
#include "gateway/pipeline/flight_window.h"
#include "gateway/pipeline/inflight.h"
#include "gateway/runtime/notifier.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* Messages that wait for their millisecond in front of one publisher: stages and other publishers push, the
 * queue's publisher takes. */
struct due_queue {
    pthread_mutex_t lock;    /* guards the heaps */
    struct due_heap heap[2]; /* what needs a claim to be published; [1]: what was relayed */
    struct notifier
        notifier; /* rings when something sooner than everything else came; the supervisor's to open */
};

void due_queue_open(struct due_queue *q);
void due_queue_close(struct due_queue *q);                   /* frees what is still in it */
int due_queue_push(struct due_queue *q, struct inflight *h); /* -1: out of memory, h stays the caller's */
/* Which of them. */
enum due_which { DUE_CLAIMED = 1, DUE_RELAYED = 2, DUE_ALL = DUE_CLAIMED | DUE_RELAYED };
/* The first message of these due at or before now_ms, or NULL. */
struct inflight *due_queue_take_due(struct due_queue *q, int64_t now_ms, enum due_which which);
/* The database's clock, by which it was said when they are tried again, was set back: that is so much sooner,
 * but not before they are due. */
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
    atomic_int unsettled; /* claimed, delivered, not written down, and not deferred */
    atomic_int *relayed;  /* the same of what was relayed; relay_book.h counts it */
    atomic_int room;      /* for so many of these: the size of the window */
    atomic_bool behind;   /* what was relayed takes long to be settled */
    atomic_llong took_ms; /* the last one that was claimed took so long to be settled */
    struct flight_window window;
    uint64_t numbered;
};

/* relayed: how many relayed ones are published and not settled, which others count. */
void result_queue_open(struct result_queue *q, atomic_int *relayed);
void result_queue_close(struct result_queue *q); /* frees what is still in it */
void result_queue_put(struct result_queue *q, struct inflight *h);
/* So many are published and not settled that the publishers are to wait: a database that takes nothing for a
 * while and a gateway that dies then would make duplicates of all of them. As many as the database needs to
 * be busy, and 256 at most: flight_window.h. */
bool result_queue_full(struct result_queue *q);
/* What was relayed waits for the settler for longer than it may take to be settled. */
bool result_queue_behind(const struct result_queue *q);
/* So long the last one that was claimed took to be settled. */
int64_t result_queue_took_ms(const struct result_queue *q);
/* How many there are. */
int result_queue_unsettled(const struct result_queue *q);
/* Waits for company, at most ms, and not while the publishers wait for the settler. */
void result_queue_gather(struct result_queue *q, int64_t ms);
/* Takes the whole queue as a list, waiting at most wait_ms for the first; NULL when none came. */
struct inflight *result_queue_take_all(struct result_queue *q, int64_t wait_ms);
/* One that was taken has to wait for somebody's lock: the publishers don't wait for it. */
void result_queue_defer(struct result_queue *q, struct inflight *h);
/* Frees one that was taken: it is written down, or left to others. */
void result_queue_free(struct result_queue *q, struct inflight *h);

#endif
