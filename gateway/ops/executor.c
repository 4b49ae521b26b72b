/* Workers: look-ups and operations on stored messages, one request at a time each. A request that meets a
 * lock is parked (executor_park.h), so that no other request waits for it. Operations by filter may take
 * minutes, so they have their own threads, and do not delay look-ups and cancels. */
#include "core/base/hash.h"
#include "gateway/ops/api_guard.h"
#include "gateway/ops/api_operation.h"
#include "gateway/ops/executor_internal.h"
#include "gateway/ops/executor_park.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/sessions.h"
#include "sql/operate/idempotency.h"

#include <stdlib.h>

#define EXECUTOR_GROUP_COMMITS 2
#define EXECUTOR_WORKERS 2
#define EXECUTOR_BULK_WORKERS 8

#define TRIES 3

struct worker {
    struct executor *executor;
    struct executor_session session;
    struct api_context context;
    struct executor_park park;
    struct executor_cells cells;
    bool has_secret;
};

/* Nothing is changed here: a connection that died while idle is noticed where trying again is safe. */
static int prepare_session(struct worker *w, const struct api_request *r, struct err *e)
{
    int64_t clock_us;
    if (executor_session_connect(&w->session, e) != 0 ||
        (!api_operation_repeats(r) && store_clock(w->session.pg, &clock_us, e) != 0))
        return -1;
    w->context.pg = w->session.pg;
    if (!w->has_secret && idempotency_secret(w->session.pg, w->context.secret, e) != 0)
        return -1;
    w->has_secret = true;
    return sessions_now_ms(w->session.runtime, w->session.pg, &w->context.now_ms, e);
}

/* The names that a change needs for itself. A token may use names outside its scope: the answer does not show
 * that they exist. */
static void name_request(struct api_request *r)
{
    static const uint8_t key[SIPHASH_KEY_SIZE] = "postdate target";
    if (r->op->effect == API_READS)
        return;
    uint64_t h = siphash(key, bytes_of_str(api_principal(r)));
    h = h * 31 + siphash(key, r->id);
    for (size_t i = 0; i < r->params.count; i++)
        h = (h * 31 + siphash(key, r->params.list[i].name)) * 31 + siphash(key, r->params.list[i].value);
    r->names[0] = h | 1;
}

/* Makes the answer. True: it met a lock, and may be tried again. */
static bool run_request(struct worker *w, struct api_request *r)
{
    struct err e = {0};
    int rc = -1;
    bool unclear = false;
    w->context.wake = w->context.idle = w->context.done = false;
    for (int i = 0; i < TRIES && rc != 0 && (!unclear || api_operation_repeats(r)); i++) {
        err_clear(&e);
        rc = prepare_session(w, r, &e);
        if (rc == 0) {
            rc = api_run(&w->context, r, &e);
            unclear |= rc != 0 && api_is_unclear(r, &e);
        }
        if (rc != 0 && e.kind != ERR_AWAY)
            break; /* it was blocked by a lock until this session's timeout */
    }
    if (w->context.wake)
        notifier_notify(&w->executor->runtime->claimer_notifier);
    if (rc == 0) {
        failing_over("http");
        executor_cells_ask(w->executor, &w->cells, &w->context, r);
        return false;
    }
    executor_session_failed(&w->session, "http", &e);
    if (unclear)
        api_fail_unclear(r, "the database");
    else if (!atomic_load(&w->executor->runtime->stored_ready))
        api_fail(&r->answer, API_NOT_READY, "the gateway is starting, or the database is unavailable");
    else
        api_fail_err(&r->answer, &e);
    return w->session.hurried && e.kind == ERR_BUSY && !w->context.done && !unclear &&
           w->session.pg != NULL && pg_is_locked_out(w->session.pg);
}

static void try_request(struct worker *w, struct api_request *r)
{
    bool locked = run_request(w, r);
    if (!locked || executor_park_put(&w->park, r, r->names[0]) == EXECUTOR_PARK_REFUSED)
        executor_park_answer(&w->park, r, locked, w->context.idle);
}

static void take_fresh(struct worker *w, struct api_request *r)
{
    if (api_guard_admit_body(r) != 0) {
        api_audit(r);
        r->done(r);
        return;
    }
    name_request(r);
    switch (executor_park_follow(&w->park, r)) {
    case EXECUTOR_PARK_NOT:
        try_request(w, r);
        return;
    case EXECUTOR_PARK_WAITS:
        return;
    case EXECUTOR_PARK_REFUSED:
        executor_park_answer(&w->park, r, true, w->context.idle);
    }
}

static void serve_queue(struct worker *w, struct executor_queue *queue, int number)
{
    struct executor *d = w->executor;
    w->context.rules = config_accept_rules(d->runtime->config);
    w->context.lead_ms = d->runtime->config->delivery.lead_ms;
    w->context.objective = executor_objective(d->runtime->config);
    w->context.ending = &d->ending;
    /* In turns: one that is fresh, and one that met a lock. */
    for (bool ended = false; !ended || w->park.first != NULL;) {
        struct api_request *r =
            executor_queue_take(queue, number, SIZE_MAX, executor_park_pause_ms(&w->park, 500), &ended);
        if (r != NULL)
            take_fresh(w, r);
        else if (!w->session.hurried) /* seldom needed, and there are many of them */
            executor_session_close(&w->session);
        executor_cells_close(&w->cells, true);
        r = executor_park_take(&w->park);
        if (r != NULL)
            try_request(w, r);
        else if (ended)
            clock_nap_ms(executor_park_pause_ms(&w->park, 20));
    }
    executor_cells_close(&w->cells, false);
    executor_session_close(&w->session);
}

static void *executor_worker(void *arg)
{
    struct executor *d = arg;
    struct worker w = {.executor = d,
                       .session = {.runtime = d->runtime, .name = "postdate http", .hurried = true}};
    serve_queue(&w, &d->pools[API_WORKER].queue, 0);
    return NULL;
}

static void *executor_bulk_worker(void *arg)
{
    struct executor *d = arg;
    struct worker w = {.executor = d, .session = {.runtime = d->runtime, .name = "postdate http bulk"}};
    serve_queue(&w, &d->pools[API_BULK_WORKER].queue, atomic_fetch_add(&d->bulk_workers_run, 1));
    return NULL;
}

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
