#include "gateway/pipeline/result_queue.h"

#include "core/base/clock.h"
#include <time.h>

#define UNSETTLED_MAX 500

void result_queue_open(struct result_queue *q)
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
}

void result_queue_close(struct result_queue *q)
{
    for (struct inflight *h = q->first, *next; h; h = next) {
        next = h->next;
        inflight_free(h);
    }
    q->first = NULL;
    pthread_cond_destroy(&q->came);
    pthread_mutex_destroy(&q->lock);
}

static bool was_taken_by_the_broker(const struct inflight *h)
{
    return !h->relayed && (h->outcome == SETTLE_DELIVERED || h->outcome == SETTLE_HANDED);
}

void result_queue_put(struct result_queue *q, struct inflight *h)
{
    h->next = NULL;
    h->unsettled = was_taken_by_the_broker(h);
    if (h->unsettled)
        atomic_fetch_add(&q->unsettled, 1);
    pthread_mutex_lock(&q->lock);
    bool was_empty = !q->first;
    *q->last = h;
    q->last = &h->next;
    pthread_mutex_unlock(&q->lock);
    if (was_empty)
        pthread_cond_signal(&q->came);
}

bool result_queue_full(struct result_queue *q)
{
    return atomic_load(&q->unsettled) >= UNSETTLED_MAX;
}

struct inflight *result_queue_take_all(struct result_queue *q, int64_t wait_ms)
{
    int64_t until = clock_monotonic_ns() + wait_ms * 1000000;
    struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_mutex_lock(&q->lock);
    while (!q->first && pthread_cond_timedwait(&q->came, &q->lock, &t) == 0)
        continue;
    struct inflight *list = q->first;
    q->first = NULL;
    q->last = &q->first;
    pthread_mutex_unlock(&q->lock);
    return list;
}

void result_queue_defer(struct result_queue *q, struct inflight *h)
{
    if (h->unsettled)
        atomic_fetch_sub(&q->unsettled, 1);
    h->unsettled = false;
}

void result_queue_free(struct result_queue *q, struct inflight *h)
{
    result_queue_defer(q, h);
    inflight_free(h);
}
