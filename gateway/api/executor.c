#include "gateway/api/api_guard.h"
#include "gateway/api/executor_internal.h"

#include <stdlib.h>

static const struct kind {
    void *(*run)(void *executor);
    int threads;
    int each, crowd; /* as executor_queue has them */
} kinds[API_THREADS_COUNT] = {
    [API_GROUP_COMMIT] = {executor_group_commit, EXECUTOR_GROUP_COMMITS, 0, 0},
    [API_WORKER] = {executor_worker, EXECUTOR_WORKERS, 0, 0},
    [API_BULK_WORKER] = {executor_bulk_worker, EXECUTOR_BULK_WORKERS, EXECUTOR_BULK_EACH,
                         EXECUTOR_BULK_CROWD},
    [API_STATISTICS] = {executor_stats, 1, 0, 0},
};

struct executor *executor_open(struct runtime *rt, struct err *e)
{
    struct executor *d = calloc(1, sizeof *d);
    bool complete = true;
    if (d == NULL) {
        err_set(e, ERR_BUG, "out of memory");
        return NULL;
    }
    d->runtime = rt;
    atomic_init(&d->why_not_ready, "the gateway is starting");
    pthread_mutex_init(&d->figures_lock, NULL);
    for (int k = 0; k < API_THREADS_COUNT; k++)
        executor_queue_open(&d->pools[k].queue, kinds[k].each, kinds[k].crowd);
    for (int k = 0; k < API_THREADS_COUNT; k++) {
        struct executor_pool *p = &d->pools[k];
        for (int i = 0; i < kinds[k].threads; i++)
            p->count += pthread_create(&p->threads[p->count], NULL, kinds[k].run, d) == 0;
        complete = complete && p->count > 0;
    }
    if (complete)
        return d;
    err_set(e, ERR_BUG, "cannot start threads: is the limit of processes reached?");
    executor_close(d);
    return NULL;
}

void executor_submit(struct executor *d, struct api_request *r)
{
    if (api_guard_admit(r) != 0) {
        api_audit(r);
        r->done(r);
        return;
    }
    executor_queue_put(&d->pools[r->op->threads].queue, r);
}

bool executor_withdraw(struct executor *d, struct api_request *r)
{
    return executor_queue_remove(&d->pools[r->op->threads].queue, r);
}

void executor_stop(struct executor *d)
{
    if (d == NULL)
        return;
    atomic_store(&d->ending, true);
    for (int k = 0; k < API_THREADS_COUNT; k++)
        executor_queue_close(&d->pools[k].queue);
    for (int k = 0; k < API_THREADS_COUNT; k++)
        for (struct executor_pool *p = &d->pools[k]; p->count > 0; p->count--)
            pthread_join(p->threads[p->count - 1], NULL);
    atomic_store(&d->why_not_ready, "the gateway is stopping");
}

void executor_close(struct executor *d)
{
    if (d == NULL)
        return;
    executor_stop(d);
    for (int k = 0; k < API_THREADS_COUNT; k++)
        executor_queue_destroy(&d->pools[k].queue);
    pthread_mutex_destroy(&d->figures_lock);
    free(d);
}
