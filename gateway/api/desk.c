#include "gateway/api/desk_internal.h"

#include "gateway/runtime/log.h"
#include "sql/admin/migrate.h"

#include <stdlib.h>
#include <time.h>

static void queue_open(struct desk_queue *q)
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

static void queue_destroy(struct desk_queue *q)
{
    pthread_cond_destroy(&q->came);
    pthread_mutex_destroy(&q->lock);
}

static void queue_close(struct desk_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_mutex_unlock(&q->lock);
    pthread_cond_broadcast(&q->came);
}

void desk_queue_put(struct desk_queue *q, struct api_request *r)
{
    r->next = NULL;
    pthread_mutex_lock(&q->lock);
    bool closed = q->closed, full = q->count == DESK_QUEUE_MAX;
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
        api_fail(&r->answer, API_OVERLOADED, "%d requests wait for the database already", DESK_QUEUE_MAX);
    r->done(r);
}

struct api_request *desk_queue_take(struct desk_queue *q, int64_t wait_ms, bool *ended)
{
    int64_t until = clock_monotonic_ns() + wait_ms * 1000000;
    struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_mutex_lock(&q->lock);
    while (q->first == NULL && !q->closed && wait_ms > 0 &&
           pthread_cond_timedwait(&q->came, &q->lock, &t) == 0)
        continue;
    struct api_request *r = q->first;
    if (r != NULL) {
        q->count--;
        q->first = r->next;
        if (q->first == NULL)
            q->last = &q->first;
    }
    *ended = q->closed && r == NULL;
    pthread_mutex_unlock(&q->lock);
    return r;
}

int desk_line_connect(struct desk_line *line, struct err *e)
{
    struct gateway *g = line->gateway;
    if (line->pg && !pg_is_broken(line->pg))
        return 0;
    pg_close(line->pg);
    line->pg = NULL;
    if (!atomic_load(&g->stored_ready))
        return err_set(e, ERR_AWAY, "the gateway is starting");
    if (clock_monotonic_ms() < line->retry_at_ms)
        return err_set(e, ERR_AWAY, "the database was away a moment ago");
    line->pg = pg_open(g->config->postgres.url, line->name, e);
    if (line->pg && migrate_check(line->pg, "", "", false, e) == 0) {
        watch_succeeded(&g->postgres);
        line->attempt = 0;
        return 0;
    }
    watch_failed(&g->postgres, e);
    pg_close(line->pg);
    line->pg = NULL;
    int64_t pause_ms = watch_pause_ms(&line->attempt);
    line->retry_at_ms = clock_monotonic_ms() + (pause_ms < 1000 ? pause_ms : 1000);
    return -1;
}

void desk_line_close(struct desk_line *line)
{
    pg_close(line->pg);
    line->pg = NULL;
}

int desk_line_now(struct desk_line *line, int64_t *out_ms, struct err *e)
{
    int64_t us;
    if (gateway_now_ms(line->gateway, out_ms))
        return 0;
    if (store_clock(line->pg, &us, e) != 0)
        return -1;
    *out_ms = us / 1000;
    return 0;
}

struct desk *desk_open(struct gateway *g, struct err *e)
{
    struct desk *d = calloc(1, sizeof *d);
    if (d == NULL) {
        err_set(e, ERR_BUG, "out of memory");
        return NULL;
    }
    d->gateway = g;
    atomic_init(&d->why_not_ready, "the gateway is starting");
    queue_open(&d->store);
    queue_open(&d->work);
    queue_open(&d->bulk);
    queue_open(&d->count);
    pthread_mutex_init(&d->counts_lock, NULL);
    for (int i = 0; i < DESK_STORERS; i++)
        d->storer_count += pthread_create(&d->storers[d->storer_count], NULL, desk_storer, d) == 0;
    for (int i = 0; i < DESK_WORKERS; i++)
        d->worker_count += pthread_create(&d->workers[d->worker_count], NULL, desk_worker, d) == 0;
    for (int i = 0; i < DESK_BULKERS; i++)
        d->bulker_count += pthread_create(&d->bulkers[d->bulker_count], NULL, desk_bulker, d) == 0;
    d->accountant_runs = pthread_create(&d->accountant, NULL, desk_accountant, d) == 0;
    if (d->storer_count > 0 && d->worker_count > 0 && d->bulker_count > 0 && d->accountant_runs)
        return d;
    err_set(e, ERR_BUG, "cannot start threads: is the limit of processes reached?");
    desk_close(d);
    return NULL;
}

void desk_put(struct desk *d, struct api_request *r)
{
    switch (r->op) {
    case API_SCHEDULE:
        desk_queue_put(&d->store, r);
        break;
    case API_STATS:
        desk_queue_put(&d->count, r);
        break;
    case API_BULK_CANCEL:
    case API_BULK_RESCHEDULE:
    case API_BULK_RETRY:
    case API_BULK_FAIL:
        desk_queue_put(&d->bulk, r);
        break;
    default:
        desk_queue_put(&d->work, r);
    }
}

void desk_stop(struct desk *d)
{
    if (d == NULL)
        return;
    atomic_store(&d->ending, true);
    queue_close(&d->store);
    queue_close(&d->work);
    queue_close(&d->bulk);
    queue_close(&d->count);
    for (int i = 0; i < d->storer_count; i++)
        pthread_join(d->storers[i], NULL);
    for (int i = 0; i < d->worker_count; i++)
        pthread_join(d->workers[i], NULL);
    for (int i = 0; i < d->bulker_count; i++)
        pthread_join(d->bulkers[i], NULL);
    if (d->accountant_runs)
        pthread_join(d->accountant, NULL);
    d->storer_count = d->worker_count = d->bulker_count = 0;
    d->accountant_runs = false;
    atomic_store(&d->why_not_ready, "the gateway is stopping");
}

void desk_close(struct desk *d)
{
    if (d == NULL)
        return;
    desk_stop(d);
    queue_destroy(&d->store);
    queue_destroy(&d->work);
    queue_destroy(&d->bulk);
    queue_destroy(&d->count);
    pthread_mutex_destroy(&d->counts_lock);
    free(d);
}

bool desk_counts(struct desk *d, struct status_report *out, int64_t *age_ms)
{
    atomic_store(&d->counts_wanted, true);
    pthread_mutex_lock(&d->counts_lock);
    bool known = d->counted_ms != 0;
    *out = d->counts;
    *age_ms = clock_monotonic_ms() - d->counted_ms;
    pthread_mutex_unlock(&d->counts_lock);
    return known;
}

const char *desk_why_not_ready(struct desk *d)
{
    return atomic_load(&d->why_not_ready);
}
