/* Requests that wait for a thread of the executor. */
#include "gateway/api/executor_internal.h"
#include "gateway/runtime/guard.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

void executor_queue_open(struct executor_queue *q, int each)
{
    *q = (struct executor_queue){.each = each};
    guard_open_cond(&q->came);
    pthread_mutex_init(&q->lock, NULL);
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

/* Behind those of its turn: the one after the last of its caller's, and the present one for a caller who has
 * none here. */
static void put_in_turn(struct executor_queue *q, struct api_request *r)
{
    struct api_request **at;
    r->turn = q->turn;
    for (const struct api_request *x = q->first; x != NULL; x = x->next)
        if (strcmp(api_principal(x), api_principal(r)) == 0)
            r->turn = x->turn + 1;
    for (at = &q->first; *at != NULL && (*at)->turn <= r->turn;)
        at = &(*at)->next;
    r->next = *at;
    *at = r;
}

void executor_queue_put(struct executor_queue *q, struct api_request *r)
{
    pthread_mutex_lock(&q->lock);
    bool closed = q->closed, full = q->count == EXECUTOR_QUEUE_MAX;
    if (!closed && !full) {
        put_in_turn(q, r);
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

/* The caller has as many of the workers as it may. */
static bool has_enough(const struct executor_queue *q, const struct api_request *r)
{
    int served = 0;
    for (int i = 0; i < EXECUTOR_QUEUE_WORKERS; i++)
        served += q->served[i].any && strcmp(q->served[i].principal, api_principal(r)) == 0;
    return q->each > 0 && served >= q->each;
}

/* The place of the next request; NULL: there is none that may be taken. */
static struct api_request **find_next(struct executor_queue *q)
{
    struct api_request **at = &q->first;
    while (*at != NULL && has_enough(q, *at))
        at = &(*at)->next;
    return *at != NULL ? at : NULL;
}

static struct api_request *take_next(struct executor_queue *q, int worker)
{
    struct api_request **at = find_next(q), *r = at != NULL ? *at : NULL;
    if (r == NULL)
        return NULL;
    *at = r->next;
    q->count--;
    if (r->turn > q->turn)
        q->turn = r->turn;
    q->served[worker].any = true;
    snprintf(q->served[worker].principal, sizeof q->served[worker].principal, "%s", api_principal(r));
    return r;
}

struct api_request *executor_queue_take(struct executor_queue *q, int worker, int64_t wait_ms, bool *ended)
{
    int64_t until = clock_monotonic_ns() + wait_ms * 1000000;
    struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_mutex_lock(&q->lock);
    if (q->served[worker].any && q->each > 0)
        pthread_cond_broadcast(&q->came);
    q->served[worker].any = false;
    while (find_next(q) == NULL && (!q->closed || q->first != NULL) && wait_ms > 0 &&
           pthread_cond_timedwait(&q->came, &q->lock, &t) == 0)
        continue;
    struct api_request *r = take_next(q, worker);
    *ended = q->closed && q->first == NULL && r == NULL;
    pthread_mutex_unlock(&q->lock);
    return r;
}
