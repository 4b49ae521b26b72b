#include "gateway/daemon/outcomes.h"

#include "core/clock.h"
#include <time.h>

void outcomes_open(struct outcomes *q)
{
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&q->came, &a);
    pthread_condattr_destroy(&a);
    pthread_mutex_init(&q->lock, NULL);
    q->first = NULL;
    q->last = &q->first;
}

void outcomes_close(struct outcomes *q)
{
    for (struct held *h = q->first, *next; h; h = next) {
        next = h->next;
        held_free(h);
    }
    q->first = NULL;
    pthread_cond_destroy(&q->came);
    pthread_mutex_destroy(&q->lock);
}

void outcomes_put(struct outcomes *q, struct held *h)
{
    h->next = NULL;
    pthread_mutex_lock(&q->lock);
    bool was_empty = !q->first;
    *q->last = h;
    q->last = &h->next;
    pthread_mutex_unlock(&q->lock);
    if (was_empty)
        pthread_cond_signal(&q->came);
}

struct held *outcomes_take_all(struct outcomes *q, int64_t wait_ms)
{
    int64_t until = clock_monotonic_ns() + wait_ms * 1000000;
    struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_mutex_lock(&q->lock);
    while (!q->first && pthread_cond_timedwait(&q->came, &q->lock, &t) == 0)
        continue;
    struct held *list = q->first;
    q->first = NULL;
    q->last = &q->first;
    pthread_mutex_unlock(&q->lock);
    return list;
}
