#include "gateway/api/api_guard.h"
#include "gateway/api/api_operation.h"
#include "gateway/api/executor_internal.h"

#include <stdlib.h>

struct executor *executor_open(struct runtime *rt, struct err *e)
{
    struct executor *d = calloc(1, sizeof *d);
    if (d == NULL) {
        err_set(e, ERR_BUG, "out of memory");
        return NULL;
    }
    d->runtime = rt;
    atomic_init(&d->why_not_ready, "the gateway is starting");
    executor_queue_open(&d->store, 0);
    executor_queue_open(&d->work, 0);
    executor_queue_open(&d->bulk, EXECUTOR_BULK_EACH);
    executor_queue_open(&d->count, 0);
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
    struct executor_queue *const queues[] = {[API_GROUP_COMMIT] = &d->store,
                                             [API_WORKER] = &d->work,
                                             [API_BULK_WORKER] = &d->bulk,
                                             [API_STATISTICS] = &d->count};
    if (api_guard_admit(r) != 0) {
        api_audit(r);
        r->done(r);
        return;
    }
    executor_queue_put(queues[r->op->threads], r);
}

void executor_stop(struct executor *d)
{
    if (d == NULL)
        return;
    atomic_store(&d->ending, true);
    executor_queue_close(&d->store);
    executor_queue_close(&d->work);
    executor_queue_close(&d->bulk);
    executor_queue_close(&d->count);
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
    executor_queue_destroy(&d->store);
    executor_queue_destroy(&d->work);
    executor_queue_destroy(&d->bulk);
    executor_queue_destroy(&d->count);
    pthread_mutex_destroy(&d->counts_lock);
    free(d);
}
