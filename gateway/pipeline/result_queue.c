#include "gateway/pipeline/result_queue.h"

#include "core/base/clock.h"
#include <time.h>

#define UNSETTLED_LEAST 4
#define UNSETTLED_ENOUGH 64
#define UNSETTLED_MOST 256
#define BEHIND_MS 100 /* a database that keeps pace settles within that */

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
    pthread_cond_destroy(&q->came);
    pthread_mutex_destroy(&q->lock);
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
    pthread_mutex_lock(&q->lock);
    if (h->unsettled) {
        h->unsettled_ms = clock_monotonic_ms();
        h->unsettled_number = q->numbered++;
        atomic_fetch_add(&q->unsettled, !h->relayed);
        flight_window_sent(&q->window, result_queue_unsettled(q) - 1, h->unsettled_ms);
        atomic_store(&q->room, q->window.size);
    }
    bool wake = !q->first || result_queue_unsettled(q) >= q->window.size;
    *q->last = h;
    q->last = &h->next;
    pthread_mutex_unlock(&q->lock);
    if (wake)
        pthread_cond_signal(&q->came);
}

bool result_queue_full(struct result_queue *q)
{
    int n = result_queue_unsettled(q);
    if (n < atomic_load(&q->room))
        return false;
    pthread_mutex_lock(&q->lock);
    bool full = !flight_window_has_room(&q->window, n, 0);
    pthread_mutex_unlock(&q->lock);
    return full;
}

static struct timespec in_ms(int64_t ms)
{
    int64_t at = clock_monotonic_ns() + ms * 1000000;
    return (struct timespec){.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
}

void result_queue_gather(struct result_queue *q, int64_t ms)
{
    struct timespec t = in_ms(ms);
    pthread_mutex_lock(&q->lock);
    while (flight_window_has_room(&q->window, result_queue_unsettled(q), 0) &&
           pthread_cond_timedwait(&q->came, &q->lock, &t) == 0)
        continue;
    pthread_mutex_unlock(&q->lock);
}

struct inflight *result_queue_take_all(struct result_queue *q, int64_t wait_ms)
{
    struct timespec t = in_ms(wait_ms);
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
        atomic_fetch_sub(&q->unsettled, !h->relayed);
    h->unsettled = false;
}

void result_queue_free(struct result_queue *q, struct inflight *h)
{
    if (h->unsettled) {
        int64_t now_ms = clock_monotonic_ms(), took_ms = now_ms - h->unsettled_ms;
        if (h->relayed)
            atomic_store(&q->behind, took_ms >= BEHIND_MS);
        pthread_mutex_lock(&q->lock);
        flight_window_answered(&q->window, h->unsettled_number, q->numbered, took_ms, now_ms);
        atomic_store(&q->room, q->window.size);
        pthread_mutex_unlock(&q->lock);
    }
    result_queue_defer(q, h);
    inflight_free(h);
}
