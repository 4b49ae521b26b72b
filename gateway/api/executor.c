#include "gateway/api/executor_internal.h"

#include "gateway/runtime/log.h"
#include "sql/admin/migrate.h"

#include <stdlib.h>
#include <time.h>

static void queue_open(struct executor_queue *q)
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

static void queue_destroy(struct executor_queue *q)
{
    pthread_cond_destroy(&q->came);
    pthread_mutex_destroy(&q->lock);
}

static void queue_close(struct executor_queue *q)
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

struct api_request *executor_queue_take(struct executor_queue *q, int64_t wait_ms, bool *ended)
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

int executor_session_connect(struct executor_session *session, struct err *e)
{
    struct gateway *g = session->gateway;
    if (session->pg && !pg_is_broken(session->pg))
        return 0;
    pg_close(session->pg);
    session->pg = NULL;
    if (!atomic_load(&g->stored_ready))
        return err_set(e, ERR_AWAY, "the gateway is starting");
    if (clock_monotonic_ms() < session->retry_at_ms)
        return err_set(e, ERR_AWAY, "the database was away a moment ago");
    session->pg = pg_open(g->config->postgres.url, session->name, e);
    if (session->pg && migrate_check(session->pg, "", "", false, e) == 0) {
        server_status_succeeded(&g->postgres);
        session->attempt = 0;
        return 0;
    }
    server_status_failed(&g->postgres, e);
    pg_close(session->pg);
    session->pg = NULL;
    int64_t pause_ms = server_status_pause_ms(&session->attempt);
    session->retry_at_ms = clock_monotonic_ms() + (pause_ms < 1000 ? pause_ms : 1000);
    return -1;
}

void executor_session_close(struct executor_session *session)
{
    pg_close(session->pg);
    session->pg = NULL;
}

int executor_session_now(struct executor_session *session, int64_t *out_ms, struct err *e)
{
    int64_t us;
    if (gateway_now_ms(session->gateway, out_ms))
        return 0;
    if (store_clock(session->pg, &us, e) != 0)
        return -1;
    *out_ms = us / 1000;
    return 0;
}

struct executor *executor_open(struct gateway *g, struct err *e)
{
    struct executor *d = calloc(1, sizeof *d);
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
    for (int i = 0; i < EXECUTOR_GROUP_COMMITS; i++)
        d->group_commit_count +=
            pthread_create(&d->group_commits[d->group_commit_count], NULL, executor_group_commit, d) == 0;
    for (int i = 0; i < EXECUTOR_WORKERS; i++)
        d->worker_count += pthread_create(&d->workers[d->worker_count], NULL, executor_worker, d) == 0;
    for (int i = 0; i < EXECUTOR_BULK_WORKERS; i++)
        d->bulk_worker_count +=
            pthread_create(&d->bulk_workers[d->bulk_worker_count], NULL, executor_bulk_worker, d) == 0;
    d->stats_runs = pthread_create(&d->stats, NULL, executor_stats, d) == 0;
    if (d->group_commit_count > 0 && d->worker_count > 0 && d->bulk_worker_count > 0 && d->stats_runs)
        return d;
    err_set(e, ERR_BUG, "cannot start threads: is the limit of processes reached?");
    executor_close(d);
    return NULL;
}

void executor_submit(struct executor *d, struct api_request *r)
{
    switch (r->op) {
    case API_SCHEDULE:
        executor_queue_put(&d->store, r);
        break;
    case API_STATS:
        executor_queue_put(&d->count, r);
        break;
    case API_BULK_CANCEL:
    case API_BULK_RESCHEDULE:
    case API_BULK_RETRY:
    case API_BULK_FAIL:
        executor_queue_put(&d->bulk, r);
        break;
    default:
        executor_queue_put(&d->work, r);
    }
}

void executor_stop(struct executor *d)
{
    if (d == NULL)
        return;
    atomic_store(&d->ending, true);
    queue_close(&d->store);
    queue_close(&d->work);
    queue_close(&d->bulk);
    queue_close(&d->count);
    for (int i = 0; i < d->group_commit_count; i++)
        pthread_join(d->group_commits[i], NULL);
    for (int i = 0; i < d->worker_count; i++)
        pthread_join(d->workers[i], NULL);
    for (int i = 0; i < d->bulk_worker_count; i++)
        pthread_join(d->bulk_workers[i], NULL);
    if (d->stats_runs)
        pthread_join(d->stats, NULL);
    d->group_commit_count = d->worker_count = d->bulk_worker_count = 0;
    d->stats_runs = false;
    atomic_store(&d->why_not_ready, "the gateway is stopping");
}

void executor_close(struct executor *d)
{
    if (d == NULL)
        return;
    executor_stop(d);
    queue_destroy(&d->store);
    queue_destroy(&d->work);
    queue_destroy(&d->bulk);
    queue_destroy(&d->count);
    pthread_mutex_destroy(&d->counts_lock);
    free(d);
}

bool executor_counts(struct executor *d, struct status_report *out, int64_t *age_ms)
{
    atomic_store(&d->counts_wanted, true);
    pthread_mutex_lock(&d->counts_lock);
    bool known = d->counted_ms != 0;
    *out = d->counts;
    *age_ms = clock_monotonic_ms() - d->counted_ms;
    pthread_mutex_unlock(&d->counts_lock);
    return known;
}

const char *executor_why_not_ready(struct executor *d)
{
    return atomic_load(&d->why_not_ready);
}
