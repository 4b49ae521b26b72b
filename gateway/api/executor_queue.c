/* Requests that wait for a thread of the executor. */
#include "gateway/api/executor_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

void executor_queue_open(struct executor_queue *q)
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

void executor_queue_destroy(struct executor_queue *q)
{
    pthread_cond_destroy(&q->came);
    pthread_mutex_destroy(&q->lock);
}

void executor_queue_close(struct executor_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_mutex_unlock(&q->lock);
    pthread_cond_broadcast(&q->came);
}

void executor_queue_put(struct executor_queue *q, struct api_request *r)
{
    r->next = NULL;
    pthread_mutex_lock(&q->lock);
    bool closed = q->closed, full = q->count == EXECUTOR_QUEUE_MAX;
    if (!closed && !full) {
        *q->last = r;
        q->last = &r->next;
        q->count++;
        pthread_cond_signal(&q->came);
    }
    pthread_mutex_unlock(&q->lock);
    if (!closed && !full)
        return;
    if (closed)
        api_fail(&r->answer, API_NOT_READY, "the gateway is stopping");
    else
        api_fail(&r->answer, API_OVERLOADED, "%d requests wait for the database already", EXECUTOR_QUEUE_MAX);
    r->done(r);
}

static const char *principal_of(const struct api_request *r)
{
    return r->scope != NULL ? r->scope->principal : "";
}

/* Of another caller than the last one, if there is one. */
static struct api_request *take_fairly(struct executor_queue *q)
{
    struct api_request **at = &q->first, *r;
    while (*at != NULL && strcmp(principal_of(*at), q->served) == 0)
        at = &(*at)->next;
    if (*at == NULL)
        at = &q->first;
    r = *at;
    if (r == NULL)
        return NULL;
    snprintf(q->served, sizeof q->served, "%s", principal_of(r));
    *at = r->next;
    if (*at == NULL)
        q->last = at;
    q->count--;
    return r;
}

struct api_request *executor_queue_take(struct executor_queue *q, int64_t wait_ms, bool *ended)
{
    int64_t until = clock_monotonic_ns() + wait_ms * 1000000;
    struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_mutex_lock(&q->lock);
    while (q->first == NULL && !q->closed && wait_ms > 0 &&
           pthread_cond_timedwait(&q->came, &q->lock, &t) == 0)
        continue;
    struct api_request *r = take_fairly(q);
    *ended = q->closed && r == NULL;
    pthread_mutex_unlock(&q->lock);
    return r;
}
