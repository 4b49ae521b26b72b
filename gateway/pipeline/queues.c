#include "gateway/pipeline/queues.h"

#include "core/base/clock.h"
#include "gateway/runtime/guard.h"
#include <time.h>

#define UNSETTLED_LEAST 4
#define UNSETTLED_ENOUGH 64
#define UNSETTLED_MOST 256
#define BEHIND_MS 100 /* a database that keeps pace settles within that */

/* --- before a publisher */

void due_queue_open(struct due_queue *q)
{
    *q = (struct due_queue){.lock = PTHREAD_MUTEX_INITIALIZER};
    due_heap_init(&q->heap);
}

void due_queue_close(struct due_queue *q)
{
    for (struct inflight *h; (h = due_heap_pop(&q->heap)) != NULL;)
        inflight_free(h);
    due_heap_free(&q->heap);
}

int due_queue_push(struct due_queue *q, struct inflight *h)
{
    GUARD(&q->lock);
    const struct due_entry *first = due_heap_peek(&q->heap);
    bool sooner = !first || h->at_ms < first->due_ms;
    int rc = due_heap_push(&q->heap, h->at_ms, h);
    q->claimed += rc == 0 && !h->relayed;
    if (rc == 0 && sooner)
        notifier_notify(&q->notifier);
    return rc;
}

struct inflight *due_queue_take_due(struct due_queue *q, int64_t now_ms)
{
    GUARD(&q->lock);
    const struct due_entry *first = due_heap_peek(&q->heap);
    struct inflight *h = first && first->due_ms <= now_ms ? due_heap_pop(&q->heap) : NULL;
    q->claimed -= h && !h->relayed;
    return h;
}

size_t due_queue_count(struct due_queue *q)
{
    GUARD(&q->lock);
    return q->heap.count;
}

size_t due_queue_claimed(struct due_queue *q)
{
    GUARD(&q->lock);
    return q->claimed;
}

int64_t due_queue_next_ms(struct due_queue *q)
{
    GUARD(&q->lock);
    const struct due_entry *first = due_heap_peek(&q->heap);
    return first ? first->due_ms : INT64_MAX;
}

/* --- before the settler */

void result_queue_open(struct result_queue *q, atomic_int *relayed)
{
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&q->came, &a);
    pthread_condattr_destroy(&a);
    pthread_mutex_init(&q->lock, NULL);
    q->first = NULL;
    q->last = &q->first;
    atomic_init(&q->unsettled, 0);
    q->relayed = relayed;
    atomic_init(&q->behind, false);
    atomic_init(&q->room, UNSETTLED_LEAST);
    flight_window_begin(&q->window, UNSETTLED_LEAST, UNSETTLED_ENOUGH, UNSETTLED_MOST);
    q->numbered = 0;
}

void result_queue_close(struct result_queue *q)
{
    for (struct inflight *h = q->first, *next; h; h = next) {
        next = h->next;
        inflight_free(h);
    }
    q->first = NULL;
}

bool result_queue_behind(const struct result_queue *q)
{
    return atomic_load(&q->behind);
}

int result_queue_unsettled(const struct result_queue *q)
{
    return atomic_load(&q->unsettled) + atomic_load(q->relayed);
}

static bool was_taken_by_the_broker(const struct inflight *h)
{
    return !h->receipt && h->outcome == SETTLE_DELIVERED;
}

void result_queue_put(struct result_queue *q, struct inflight *h)
{
    h->next = NULL;
    h->unsettled = was_taken_by_the_broker(h);
    GUARD(&q->lock);
    if (h->unsettled) {
        h->unsettled_ms = clock_monotonic_ms();
        h->unsettled_number = q->numbered++;
        atomic_fetch_add(&q->unsettled, !h->relayed);
        flight_window_sent(&q->window, result_queue_unsettled(q) - 1, h->unsettled_ms);
        atomic_store(&q->room, q->window.size);
    }
    if (!q->first || result_queue_unsettled(q) >= q->window.size)
        pthread_cond_signal(&q->came);
    *q->last = h;
    q->last = &h->next;
}

bool result_queue_full(struct result_queue *q)
{
    int n = result_queue_unsettled(q);
    if (n < atomic_load(&q->room))
        return false;
    GUARD(&q->lock);
    return !flight_window_has_room(&q->window, n, 0);
}

static struct timespec in_ms(int64_t ms)
{
    int64_t at = clock_monotonic_ns() + ms * 1000000;
    return (struct timespec){.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
}

void result_queue_gather(struct result_queue *q, int64_t ms)
{
    struct timespec t = in_ms(ms);
    GUARD(&q->lock);
    while (flight_window_has_room(&q->window, result_queue_unsettled(q), 0) &&
           pthread_cond_timedwait(&q->came, &q->lock, &t) == 0)
        continue;
}

struct inflight *result_queue_take_all(struct result_queue *q, int64_t wait_ms)
{
    struct timespec t = in_ms(wait_ms);
    GUARD(&q->lock);
    while (!q->first && pthread_cond_timedwait(&q->came, &q->lock, &t) == 0)
        continue;
    struct inflight *list = q->first;
    q->first = NULL;
    q->last = &q->first;
    return list;
}

void result_queue_defer(struct result_queue *q, struct inflight *h)
{
    if (h->unsettled)
        atomic_fetch_sub(&q->unsettled, !h->relayed);
    h->unsettled = false;
}

void result_queue_free(struct result_queue *q, struct inflight *h)
{
    if (h->unsettled) {
        int64_t now_ms = clock_monotonic_ms(), took_ms = now_ms - h->unsettled_ms;
        if (h->relayed)
            atomic_store(&q->behind, took_ms >= BEHIND_MS);
        GUARD(&q->lock);
        flight_window_answered(&q->window, h->unsettled_number, q->numbered, took_ms, now_ms);
        atomic_store(&q->room, q->window.size);
    }
    result_queue_defer(q, h);
    inflight_free(h);
}
